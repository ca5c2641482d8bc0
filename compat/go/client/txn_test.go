package client

import (
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tenure-compat/harness"
)

func grpcCode(err error) codes.Code  { return status.Code(err) }
func grpcMessage(err error) string   { return status.Convert(err).Message() }
func getOp(key string) *pb.RequestOp { return rangeOp(&pb.RangeRequest{Key: []byte(key)}) }

func rangeOp(request *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: request}}
}

func putOp(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func deleteOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func txnOp(request *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: request}}
}

func versionIs(key string, version int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: version}}
}

func TestTxnAnswers(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	must(client.Put(ctx, "a", "1"))(t)
	must(client.Put(ctx, "c", "1"))(t)

	answer := must(stub.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{versionIs("a", 1)},
		Success: []*pb.RequestOp{getOp("a"), deleteOp("zz", ""), putOp("a", "2"), putOp("b", "3"), getOp("a"), deleteOp("c", ""), getOp("c"),
			txnOp(&pb.TxnRequest{Success: []*pb.RequestOp{getOp("a")}})},
	}))(t)
	equal(t, "succeeded", answer.Succeeded, true)
	equal(t, "revision", answer.Header.Revision, 4)
	if answer.Header.ClusterId == 0 || answer.Header.MemberId == 0 {
		t.Error("the outer header lacks its ids")
	}
	r := answer.Responses
	// An inner header holds the revision only: that of before until the first change, then the new one.
	for i, header := range []*pb.ResponseHeader{r[0].GetResponseRange().Header, r[1].GetResponseDeleteRange().Header, r[2].GetResponsePut().Header,
		r[3].GetResponsePut().Header, r[4].GetResponseRange().Header, r[5].GetResponseDeleteRange().Header, r[6].GetResponseRange().Header} {
		want := int64(4)
		if i < 2 {
			want = 3
		}
		equal(t, fmt.Sprint("revision of answer ", i), header.GetRevision(), want)
		if header.GetClusterId() != 0 || header.GetMemberId() != 0 || header.GetRaftTerm() != 0 {
			t.Errorf("answer %d has a full header: %v", i, header)
		}
	}
	nested := r[7].GetResponseTxn()
	if nested.Header == nil || nested.Header.Revision != 0 {
		t.Errorf("header of a nested transaction: %v", nested.Header)
	}
	equal(t, "nested range", entryOf(nested.Responses[0].GetResponseRange().Kvs[0]), entry{"a", "2", 2, 4, 2, 0})
	equal(t, "before the put", entryOf(r[0].GetResponseRange().Kvs[0]), entry{"a", "1", 2, 2, 1, 0})
	equal(t, "after the put", entryOf(r[4].GetResponseRange().Kvs[0]), entry{"a", "2", 2, 4, 2, 0})
	equal(t, "deleted in the same transaction", r[5].GetResponseDeleteRange().Deleted, 1)
	equal(t, "read after the delete", r[6].GetResponseRange().Count, 0)

	// A transaction that changes nothing makes no revision.
	answer = must(stub.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("zz", ""), getOp("a")}}))(t)
	equal(t, "revision without change", answer.Header.Revision, 4)
	answer = must(stub.Txn(ctx, &pb.TxnRequest{}))(t)
	equal(t, "empty transaction", answer.Succeeded, true)
	equal(t, "answers of an empty transaction", len(answer.Responses), 0)
	answer = must(stub.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{versionIs("a", 9)}, Failure: []*pb.RequestOp{putOp("a", "else")}}))(t)
	equal(t, "failed compare", answer.Succeeded, false)
	equal(t, "revision of the other branch", answer.Header.Revision, 5)
}

func TestTxnCompares(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	lease := must(client.Grant(ctx, 600))(t).ID
	must(client.Put(ctx, "a", "5"))(t)                            // 2
	must(client.Put(ctx, "a", "5", clientv3.WithLease(lease)))(t) // 3
	must(client.Put(ctx, "ab", "6"))(t)                           // 4
	const eq, gt, lt, ne = pb.Compare_EQUAL, pb.Compare_GREATER, pb.Compare_LESS, pb.Compare_NOT_EQUAL
	version := func(n int64) *pb.Compare {
		return &pb.Compare{Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: n}}
	}
	create := func(n int64) *pb.Compare {
		return &pb.Compare{Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: n}}
	}
	mod := func(n int64) *pb.Compare {
		return &pb.Compare{Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: n}}
	}
	value := func(text string) *pb.Compare {
		return &pb.Compare{Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte(text)}}
	}
	leased := func(id clientv3.LeaseID) *pb.Compare {
		return &pb.Compare{Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: int64(id)}}
	}
	for i, c := range []struct {
		key, end string
		compare  *pb.Compare
		result   pb.Compare_CompareResult
		want     bool
	}{
		{"a", "", version(2), eq, true}, {"a", "", version(1), gt, true}, {"a", "", version(2), gt, false},
		{"a", "", version(3), lt, true}, {"a", "", version(2), ne, false}, {"a", "", version(7), ne, true},
		{"a", "", create(2), eq, true}, {"a", "", mod(3), eq, true}, {"a", "", mod(2), gt, true}, {"a", "", mod(3), lt, false},
		{"a", "", value("5"), eq, true}, {"a", "", value("4"), gt, true}, {"a", "", value("50"), lt, true}, {"a", "", value("5"), ne, false},
		{"a", "", leased(lease), eq, true}, {"a", "", leased(0), eq, false}, {"ab", "", leased(0), eq, true}, {"a", "", leased(0), ne, true},
		// A key that is missing compares as zero, but its value compares with nothing.
		{"x", "", version(0), eq, true}, {"x", "", create(0), eq, true}, {"x", "", mod(0), eq, true}, {"x", "", leased(0), eq, true},
		{"x", "", version(1), lt, true}, {"x", "", value(""), eq, false}, {"x", "", value("a"), ne, false}, {"x", "", value("a"), lt, false},
		// With a range every key must compare.
		{"a", "b", create(1), gt, true}, {"a", "b", mod(3), eq, false}, {"a", "b", value("4"), gt, true}, {"a", "b", value("5"), gt, false},
		{"x", "y", version(0), eq, true}, {"x", "y", version(0), gt, false}, {"x", "y", value("a"), ne, false}, {"a", "\x00", version(0), gt, true},
		// A union that is not set compares with zero.
		{"x", "", &pb.Compare{Target: pb.Compare_MOD}, eq, true}, {"a", "", &pb.Compare{Target: pb.Compare_MOD}, gt, true},
	} {
		c.compare.Key, c.compare.RangeEnd, c.compare.Result = []byte(c.key), []byte(c.end), c.result
		answer := must(stub.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{c.compare}}))(t)
		if answer.Succeeded != c.want {
			t.Errorf("compare %d %v: got %v", i, c.compare, answer.Succeeded)
		}
	}
	_, err := stub.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{version(0)}})
	refused(t, "compare without key", err, codes.InvalidArgument, "etcdserver: key is not provided")
}

func TestTxnNestedComparesSeeTheStateBefore(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	must(client.Put(ctx, "a", "1"))(t)
	answer := must(stub.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
		putOp("a", "2"),
		txnOp(&pb.TxnRequest{
			Compare: []*pb.Compare{versionIs("a", 1)}, // it is 2 by now, but was 1 when the transaction began
			Success: []*pb.RequestOp{putOp("b", "then")},
			Failure: []*pb.RequestOp{putOp("b", "else")},
		}),
	}}))(t)
	equal(t, "nested compare", answer.Responses[1].GetResponseTxn().Succeeded, true)
	equal(t, "b", entryOf(must(client.Get(ctx, "b"))(t).Kvs[0]), entry{"b", "then", 3, 3, 1, 0})
}

func TestTxnRefused(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	must(client.Put(ctx, "k", "before"))(t)
	const duplicate, many = "etcdserver: duplicate key given in txn request", "etcdserver: too many operations in txn request"
	repeat := func(op *pb.RequestOp, times int) (all []*pb.RequestOp) {
		for range times {
			all = append(all, op)
		}
		return all
	}
	putLease := putOp("k", "")
	putLease.GetRequestPut().Lease = 77
	ignoreValue := putOp("missing", "")
	ignoreValue.GetRequestPut().IgnoreValue = true
	ignoreBoth := putOp("k", "v")
	ignoreBoth.GetRequestPut().IgnoreValue = true
	for _, c := range []struct {
		what    string
		ops     []*pb.RequestOp
		code    codes.Code
		message string
	}{
		{"two puts", []*pb.RequestOp{putOp("k", "1"), putOp("k", "2")}, codes.InvalidArgument, duplicate},
		{"put and delete", []*pb.RequestOp{putOp("k", "1"), deleteOp("k", "")}, codes.InvalidArgument, duplicate},
		{"put in a deleted range", []*pb.RequestOp{deleteOp("a", "z"), putOp("k", "1")}, codes.InvalidArgument, duplicate},
		{"put again in a nested one", []*pb.RequestOp{putOp("k", "1"), txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{putOp("k", "2")}})}, codes.InvalidArgument, duplicate},
		{"put in two nested ones", []*pb.RequestOp{txnOp(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("k", "1")}}), txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{putOp("k", "2")}})}, codes.InvalidArgument, duplicate},
		{"empty operation", []*pb.RequestOp{{}}, codes.InvalidArgument, "etcdserver: key not found"},
		{"put without key", []*pb.RequestOp{putOp("", "1")}, codes.InvalidArgument, "etcdserver: key is not provided"},
		{"range without key", []*pb.RequestOp{getOp("")}, codes.InvalidArgument, "etcdserver: key is not provided"},
		{"delete without key", []*pb.RequestOp{deleteOp("", "")}, codes.InvalidArgument, "etcdserver: key is not provided"},
		{"129 operations", repeat(getOp("k"), 129), codes.InvalidArgument, many},
		{"nested beyond what is left", []*pb.RequestOp{txnOp(&pb.TxnRequest{Success: repeat(getOp("k"), 128)})}, codes.InvalidArgument, many},
		{"put and then an unknown lease", []*pb.RequestOp{putOp("other", "1"), putLease}, codes.NotFound, "etcdserver: requested lease not found"},
		{"put and then ignore_value of nothing", []*pb.RequestOp{putOp("other", "1"), ignoreValue}, codes.InvalidArgument, "etcdserver: key not found"},
		{"ignore_value with value", []*pb.RequestOp{ignoreBoth}, codes.InvalidArgument, "etcdserver: value is provided"},
		{"put and then the future", []*pb.RequestOp{putOp("other", "1"), rangeOp(&pb.RangeRequest{Key: []byte("k"), Revision: 99})}, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision"},
		{"unknown sort", []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: []byte("k"), SortOrder: 9})}, codes.InvalidArgument, "etcdserver: invalid sort option"},
	} {
		_, err := stub.Txn(ctx, &pb.TxnRequest{Success: c.ops})
		refused(t, c.what, err, c.code, c.message)
	}
	var compares []*pb.Compare
	for range 129 {
		compares = append(compares, versionIs("k", 1))
	}
	_, err := stub.Txn(ctx, &pb.TxnRequest{Compare: compares})
	refused(t, "129 compares", err, codes.InvalidArgument, many)
	equal(t, "nothing was written", must(client.Get(ctx, "k"))(t).Header.Revision, 2)

	// What is allowed though it looks alike.
	for what, request := range map[string]*pb.TxnRequest{
		"128 operations":            {Success: repeat(getOp("k"), 128)},
		"127 nested in 1":           {Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Success: repeat(getOp("k"), 127)})}},
		"overlapping deletes":       {Success: []*pb.RequestOp{deleteOp("x", "z"), deleteOp("y", "")}},
		"the same key in branches":  {Success: []*pb.RequestOp{putOp("k", "1")}, Failure: []*pb.RequestOp{putOp("k", "2")}},
		"the same in nested ones":   {Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("k", "1")}, Failure: []*pb.RequestOp{putOp("k", "2")}})}},
		"a put that is not reached": {Compare: []*pb.Compare{versionIs("k", 99)}, Success: []*pb.RequestOp{putLease}},
	} {
		if _, err := stub.Txn(ctx, request); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := client.Txn(ctx).Then(clientv3.OpPut("k", "1"), clientv3.OpPut("k", "2")).Commit(); !errors.Is(err, rpctypes.ErrDuplicateKey) {
		t.Errorf("the client sees %v", err)
	}
}

func TestTxnNestedDeeply(t *testing.T) {
	client, ctx, prefix := shared(t)
	op := clientv3.OpPut(prefix, "deep")
	for range 40 {
		op = clientv3.OpTxn(nil, []clientv3.Op{op}, nil)
	}
	must(client.Do(ctx, op))(t)
	equal(t, "value", string(must(client.Get(ctx, prefix))(t).Kvs[0].Value), "deep")

	deeper := func(levels int) error {
		op := clientv3.OpPut(prefix, "deeper")
		for range levels {
			op = clientv3.OpTxn(nil, []clientv3.Op{op}, nil)
		}
		_, err := client.Do(ctx, op)
		return err
	}
	const many = "etcdserver: too many operations in txn request"
	// Each level takes one of the 128 operations.
	equal(t, "129 levels", fmt.Sprint(deeper(129)), many)
	equal(t, "128 levels", fmt.Sprint(deeper(128)), harness.Pick(t, "txn-depth", "<nil>", many))
}

// TestTxnIncrements has many clients raise one counter: no raise may be lost.
func TestTxnIncrements(t *testing.T) {
	client, ctx, prefix := shared(t)
	must(client.Put(ctx, prefix, ""))(t)
	const workers, each = 5, 10
	done := make(chan error, workers)
	for range workers {
		go func() {
			for raised := 0; raised < each; {
				got, err := client.Get(ctx, prefix)
				if err != nil {
					done <- err
					return
				}
				kv := got.Kvs[0]
				answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(prefix), "=", kv.ModRevision)).
					Then(clientv3.OpPut(prefix, string(kv.Value)+"x")).Commit()
				if err != nil {
					done <- err
					return
				}
				if answer.Succeeded {
					raised++
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := receive(t, "worker", done); err != nil {
			t.Fatal(err)
		}
	}
	kv := must(client.Get(ctx, prefix))(t).Kvs[0]
	equal(t, "raises", len(kv.Value), workers*each)
	equal(t, "version", kv.Version, workers*each+1)
}
