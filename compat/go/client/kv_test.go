package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"tenure-compat/harness"
)

func TestPutGetDelete(t *testing.T) {
	_, client, ctx := own(t)
	equal(t, "fresh revision", must(client.Get(ctx, "a"))(t).Header.Revision, 1)

	put := must(client.Put(ctx, "a", "1"))(t)
	equal(t, "revision of the first put", put.Header.Revision, 2)
	if put.PrevKv != nil {
		t.Error("prev_kv was not asked for")
	}
	put = must(client.Put(ctx, "a", "2", clientv3.WithPrevKV()))(t)
	equal(t, "prev_kv", entryOf(put.PrevKv), entry{"a", "1", 2, 2, 1, 0})

	got := must(client.Get(ctx, "a"))(t)
	equal(t, "pair", entryOf(got.Kvs[0]), entry{"a", "2", 2, 3, 2, 0})
	equal(t, "count", got.Count, 1)
	if got.Header.ClusterId == 0 || got.Header.MemberId == 0 || got.Header.RaftTerm == 0 {
		t.Errorf("header lacks something: %v", got.Header)
	}

	deleted := must(client.Delete(ctx, "a", clientv3.WithPrevKV()))(t)
	equal(t, "deleted", deleted.Deleted, 1)
	equal(t, "revision of the delete", deleted.Header.Revision, 4)
	equal(t, "deleted pair", entryOf(deleted.PrevKvs[0]), entry{"a", "2", 2, 3, 2, 0})
	deleted = must(client.Delete(ctx, "a"))(t)
	equal(t, "deleted again", deleted.Deleted, 0)
	equal(t, "revision of a delete of nothing", deleted.Header.Revision, 4)

	must(client.Put(ctx, "a", "3"))(t)
	equal(t, "born again", entryOf(must(client.Get(ctx, "a"))(t).Kvs[0]), entry{"a", "3", 5, 5, 1, 0})
	equal(t, "old revision", entryOf(must(client.Get(ctx, "a", clientv3.WithRev(3)))(t).Kvs[0]), entry{"a", "2", 2, 3, 2, 0})
	equal(t, "while deleted", must(client.Get(ctx, "a", clientv3.WithRev(4)))(t).Count, 0)
	// The header tells the revision of the store, not the one that was asked for.
	equal(t, "header of an old read", must(client.Get(ctx, "a", clientv3.WithRev(2)))(t).Header.Revision, 5)
}

func TestBinaryKeysAndValues(t *testing.T) {
	client, ctx, prefix := shared(t)
	for _, key := range []string{"\x00", "\x00\x00", "\xff", "\xff\xff", "日本", string(bytes.Repeat([]byte("k"), 5000))} {
		value := "\x00\xfe" + key
		must(client.Put(ctx, prefix+key, value))(t)
		equal(t, "value", string(must(client.Get(ctx, prefix+key))(t).Kvs[0].Value), value)
	}
	equal(t, "count", must(client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count, 6)
}

func TestRangeEnds(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	for _, key := range []string{"a", "b", "ba", "bb", "c", "\xff"} {
		must(client.Put(ctx, key, "v"))(t)
	}
	for _, c := range []struct{ key, end, want string }{
		{"b", "", "b "},
		{"b", "c", "b ba bb "},
		{"b", "\x00", "b ba bb c \xff "},
		{"\x00", "\x00", "a b ba bb c \xff "},
		{"\x00", "", ""},
		{"b", "b", ""},
		{"c", "a", ""},
		{"b", "b\x00", "b "},
	} {
		got := must(stub.Range(ctx, &pb.RangeRequest{Key: []byte(c.key), RangeEnd: []byte(c.end)}))(t)
		equal(t, fmt.Sprintf("[%q,%q)", c.key, c.end), keysOf(got.Kvs), c.want)
		equal(t, "count", got.Count, int64(len(got.Kvs)))
		counted := must(stub.Range(ctx, &pb.RangeRequest{Key: []byte(c.key), RangeEnd: []byte(c.end), CountOnly: true, Limit: 1}))(t)
		equal(t, "count only", counted.Count, got.Count)
		equal(t, "pairs when only counting", len(counted.Kvs), 0)
		equal(t, "more when only counting", counted.More, false)
	}
	for _, c := range []struct {
		limit int64
		keys  string
		more  bool
	}{{0, "a b ba bb c \xff ", false}, {-1, "a b ba bb c \xff ", false}, {2, "a b ", true}, {6, "a b ba bb c \xff ", false}, {7, "a b ba bb c \xff ", false}} {
		got := must(stub.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Limit: c.limit}))(t)
		equal(t, fmt.Sprint("limit ", c.limit), keysOf(got.Kvs), c.keys)
		equal(t, fmt.Sprint("more at limit ", c.limit), got.More, c.more)
		equal(t, fmt.Sprint("count at limit ", c.limit), got.Count, 6)
	}
}

func TestRangeSortAndFilters(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	// revisions            2         3         4         5         6         7
	for _, kv := range []string{"a 3", "b 2", "c 1", "d 4", "a 3", "b 9"} {
		must(client.Put(ctx, kv[:1], kv[2:]))(t)
	}
	get := func(request *pb.RangeRequest) string {
		t.Helper()
		request.Key, request.RangeEnd = []byte{0}, []byte{0}
		return keysOf(must(stub.Range(ctx, request))(t).Kvs)
	}
	const none, up, down = pb.RangeRequest_NONE, pb.RangeRequest_ASCEND, pb.RangeRequest_DESCEND
	for _, c := range []struct {
		order  pb.RangeRequest_SortOrder
		target pb.RangeRequest_SortTarget
		limit  int64
		want   string
	}{
		{none, pb.RangeRequest_KEY, 0, "a b c d "},
		{down, pb.RangeRequest_KEY, 0, "d c b a "},
		{down, pb.RangeRequest_KEY, 2, "d c "},
		{up, pb.RangeRequest_VALUE, 0, "c a d b "},
		{down, pb.RangeRequest_VALUE, 0, "b d a c "},
		{up, pb.RangeRequest_MOD, 0, "c d a b "},
		{down, pb.RangeRequest_MOD, 1, "b "},
		{up, pb.RangeRequest_CREATE, 0, "a b c d "},
		{down, pb.RangeRequest_CREATE, 3, "d c b "},
		{down, pb.RangeRequest_VERSION, 0, ""},
		// Without an order the first limit+1 pairs by key are taken, sorted ascending, and cut.
		{none, pb.RangeRequest_VALUE, 0, "c a d b "},
		{none, pb.RangeRequest_VALUE, 1, "a "},
		{none, pb.RangeRequest_VALUE, 2, "c a "},
		{up, pb.RangeRequest_VALUE, 1, "c "},
		{none, pb.RangeRequest_MOD, 1, "a "},
		{none, pb.RangeRequest_MOD, 2, "c a "},
	} {
		got := get(&pb.RangeRequest{SortOrder: c.order, SortTarget: c.target, Limit: c.limit})
		if c.target == pb.RangeRequest_VERSION { // keys of the same version come in no certain order
			equal(t, "by version", strings.ContainsAny(got[:4], "ab") && !strings.ContainsAny(got[:4], "cd"), true)
			continue
		}
		equal(t, fmt.Sprint("sort ", c.order, " ", c.target, " limit ", c.limit), got, c.want)
	}
	equal(t, "min mod", get(&pb.RangeRequest{MinModRevision: 5}), "a b d ")
	equal(t, "max mod", get(&pb.RangeRequest{MaxModRevision: 5}), "c d ")
	equal(t, "min create", get(&pb.RangeRequest{MinCreateRevision: 3}), "b c d ")
	equal(t, "max create", get(&pb.RangeRequest{MaxCreateRevision: 3}), "a b ")
	// With a filter the limit counts what the filter leaves.
	equal(t, "limit after filter", get(&pb.RangeRequest{MinCreateRevision: 4, Limit: 1}), "c ")
	filtered := must(stub.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, MinCreateRevision: 4, Limit: 1}))(t)
	equal(t, "more after filter", filtered.More, true)
	equal(t, "count despite filter", filtered.Count, 4)

	_, err := stub.Range(ctx, &pb.RangeRequest{Key: []byte("a"), SortOrder: 9})
	refused(t, "unknown order", err, codes.InvalidArgument, "etcdserver: invalid sort option")
	_, err = stub.Range(ctx, &pb.RangeRequest{Key: []byte("a"), SortTarget: 9})
	refused(t, "unknown target", err, codes.InvalidArgument, "etcdserver: invalid sort option")
}

func TestKeysOnlyHasNoLease(t *testing.T) {
	client, ctx, prefix := shared(t)
	lease := must(client.Grant(ctx, 600))(t).ID
	must(client.Put(ctx, prefix, "v", clientv3.WithLease(lease)))(t)
	kv := must(client.Get(ctx, prefix, clientv3.WithKeysOnly()))(t).Kvs[0]
	equal(t, "value", len(kv.Value), 0)
	equal(t, "lease", kv.Lease, 0)
	equal(t, "version", kv.Version, 1)
	// Sorted by value, the pairs come from where the lease is, too.
	kv = must(client.Get(ctx, prefix, clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend)))(t).Kvs[0]
	equal(t, "value when sorted by value", len(kv.Value), 0)
	equal(t, "lease when sorted by value", kv.Lease, int64(lease))
}

func TestRevisionsOutOfRange(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	const compacted, future = "etcdserver: mvcc: required revision has been compacted", "etcdserver: mvcc: required revision is a future revision"
	get := func(revision int64) error {
		_, err := stub.Range(ctx, &pb.RangeRequest{Key: []byte("a"), Revision: revision})
		return err
	}
	_, err := stub.Compact(ctx, &pb.CompactionRequest{})
	equal(t, "compaction at 0 of a store never compacted", err, nil)
	for range 4 {
		must(client.Put(ctx, "a", "v"))(t)
	}
	equal(t, "negative revision", get(-7), nil)
	refused(t, "future", get(6), codes.OutOfRange, future)
	_, err = stub.Compact(ctx, &pb.CompactionRequest{Revision: 6})
	refused(t, "compaction of the future", err, codes.OutOfRange, future)
	equal(t, "header of a compaction", must(stub.Compact(ctx, &pb.CompactionRequest{Revision: 3, Physical: true}))(t).Header.Revision, 5)
	for _, revision := range []int64{0, 2, 3} {
		_, err = stub.Compact(ctx, &pb.CompactionRequest{Revision: revision})
		refused(t, fmt.Sprint("compaction at ", revision), err, codes.OutOfRange, compacted)
	}
	refused(t, "compacted", get(2), codes.OutOfRange, compacted)
	equal(t, "at the compaction", get(3), nil)

	txn := func(revision int64) error {
		_, err := stub.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: []byte("a"), Revision: revision})}})
		return err
	}
	refused(t, "compacted in a transaction", txn(2), codes.OutOfRange, compacted)
	refused(t, "negative in a transaction", txn(-1), codes.OutOfRange, compacted)
	refused(t, "future in a transaction", txn(6), codes.OutOfRange, future)

	if _, err := client.Get(ctx, "a", clientv3.WithRev(1)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("the client sees %v", err)
	}
	if _, err := client.Get(ctx, "a", clientv3.WithRev(99)); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("the client sees %v", err)
	}
}

func TestPutErrors(t *testing.T) {
	client, ctx, prefix := shared(t)
	stub := rawClient(t, harness.Shared(t))
	key := []byte(prefix)
	put := func(request *pb.PutRequest) error {
		_, err := stub.Put(ctx, request)
		return err
	}
	refused(t, "no key", put(&pb.PutRequest{}), codes.InvalidArgument, "etcdserver: key is not provided")
	refused(t, "ignore_value with value", put(&pb.PutRequest{Key: key, Value: key, IgnoreValue: true}), codes.InvalidArgument, "etcdserver: value is provided")
	refused(t, "ignore_lease with lease", put(&pb.PutRequest{Key: key, Lease: 7, IgnoreLease: true}), codes.InvalidArgument, "etcdserver: lease is provided")
	refused(t, "ignore_value without pair", put(&pb.PutRequest{Key: key, IgnoreValue: true}), codes.InvalidArgument, "etcdserver: key not found")
	refused(t, "ignore_lease without pair", put(&pb.PutRequest{Key: key, IgnoreLease: true}), codes.InvalidArgument, "etcdserver: key not found")
	refused(t, "unknown lease", put(&pb.PutRequest{Key: key, Lease: 7}), codes.NotFound, "etcdserver: requested lease not found")
	equal(t, "nothing was written", must(client.Get(ctx, prefix))(t).Count, 0)
	_, err := stub.Range(ctx, &pb.RangeRequest{})
	refused(t, "range without key", err, codes.InvalidArgument, "etcdserver: key is not provided")
	_, err = stub.DeleteRange(ctx, &pb.DeleteRangeRequest{})
	refused(t, "delete without key", err, codes.InvalidArgument, "etcdserver: key is not provided")
	if _, err := client.Put(ctx, prefix, "v", clientv3.WithLease(7)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("the client sees %v", err)
	}
}

func TestRequestTooLarge(t *testing.T) {
	client, ctx, prefix := shared(t)
	stub := rawClient(t, harness.Shared(t))
	put := func(size int) error {
		_, err := stub.Put(ctx, &pb.PutRequest{Key: []byte(prefix), Value: make([]byte, size)})
		return err
	}
	equal(t, "1.4 MiB", put(1400<<10), nil)
	refused(t, "over 1.5 MiB", put(1536<<10), codes.InvalidArgument, "etcdserver: request is too large")
	// Beyond 2 MiB gRPC itself refuses the message; the words are those of its implementation.
	if err := put(3 << 20); err == nil {
		t.Error("3 MiB were accepted")
	} else {
		refused(t, "over 2 MiB", err, codes.ResourceExhausted, grpcMessage(err))
	}
	if _, err := client.Put(ctx, prefix, strings.Repeat("v", 1536<<10)); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
		t.Errorf("the client sees %v", err)
	}
	equal(t, "size of what stayed", len(must(client.Get(ctx, prefix))(t).Kvs[0].Value), 1400<<10)
	must(client.Delete(ctx, prefix))(t)
}

func TestLargeAnswer(t *testing.T) {
	client, ctx, prefix := shared(t)
	for i := range 6 {
		must(client.Put(ctx, fmt.Sprint(prefix, i), strings.Repeat("v", 1<<20)))(t)
	}
	got := must(client.Get(ctx, prefix, clientv3.WithPrefix()))(t)
	equal(t, "pairs", len(got.Kvs), 6)
	must(client.Delete(ctx, prefix, clientv3.WithPrefix()))(t)
}

func TestRangeStream(t *testing.T) {
	server, client, ctx := own(t)
	stub := rawClient(t, server.Endpoint)
	for i := range 25 {
		must(client.Put(ctx, fmt.Sprintf("k%02d", i), strings.Repeat("v", 100)))(t)
	}
	read := func(request *pb.RangeRequest) ([]*pb.RangeResponse, error) {
		stream, err := stub.RangeStream(ctx, request)
		if err != nil {
			return nil, err
		}
		var all []*pb.RangeResponse
		for {
			message, err := stream.Recv()
			if err == io.EOF {
				return all, nil
			}
			if err != nil {
				return all, err
			}
			all = append(all, message.RangeResponse)
		}
	}
	all := func(what string, request *pb.RangeRequest, pairs int, more bool, count int64) {
		t.Helper()
		chunks, err := read(request)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		total := 0
		var last string
		for i, chunk := range chunks {
			for _, kv := range chunk.Kvs {
				if string(kv.Key) <= last {
					t.Errorf("%s: %s after %s", what, kv.Key, last)
				}
				last = string(kv.Key)
				total++
			}
			if i < len(chunks)-1 && (chunk.Header != nil || chunk.More || chunk.Count != 0) {
				t.Errorf("%s: header, more or count before the last chunk: %v", what, chunk)
			}
		}
		end := chunks[len(chunks)-1]
		equal(t, what+": pairs", total, pairs)
		equal(t, what+": revision", end.Header.GetRevision(), 26)
		equal(t, what+": more", end.More, more)
		equal(t, what+": count", end.Count, count)
	}
	everything := func() *pb.RangeRequest { return &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")} }
	all("everything", everything(), 25, false, 25)
	limited := everything()
	limited.Limit = 12
	all("limited", limited, 12, true, 25)
	counted := everything()
	counted.CountOnly = true
	all("only the count", counted, 0, false, 25)
	bare := everything()
	bare.KeysOnly = true
	all("only keys", bare, 25, false, 25)
	old := everything()
	old.Revision = 6
	all("old", old, 5, false, 5)
	all("one", &pb.RangeRequest{Key: []byte("k03")}, 1, false, 1)
	all("nothing", &pb.RangeRequest{Key: []byte("x")}, 0, false, 0)

	sorted := everything()
	sorted.SortOrder = pb.RangeRequest_DESCEND
	_, err := read(sorted)
	if grpcCode(err) != codes.Unimplemented {
		t.Errorf("sorted: %v", err)
	}
	filtered := everything()
	filtered.MinModRevision = 3
	_, err = read(filtered)
	if grpcCode(err) != codes.Unimplemented {
		t.Errorf("filtered: %v", err)
	}
	_, err = read(&pb.RangeRequest{})
	refused(t, "no key", err, codes.InvalidArgument, "etcdserver: key is not provided")
	future := everything()
	future.Revision = 99
	_, err = read(future)
	refused(t, "future", err, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision")
}

func TestSerializableReads(t *testing.T) {
	client, ctx, prefix := shared(t)
	put := must(client.Put(ctx, prefix, "v"))(t)
	got := must(client.Get(ctx, prefix, clientv3.WithSerializable()))(t)
	equal(t, "value", string(got.Kvs[0].Value), "v")
	if got.Header.Revision < put.Header.Revision {
		t.Errorf("revision %d after %d", got.Header.Revision, put.Header.Revision)
	}
}

// TestUnknownMethod calls what is not there, as a client of a later release would.
func TestUnknownMethod(t *testing.T) {
	_, ctx, _ := shared(t)
	conn := harness.Conn(t, harness.Shared(t))
	for _, method := range []string{"/etcdserverpb.KV/Bogus", "/bogus.Service/Bogus"} {
		if err := conn.Invoke(ctx, method, &pb.RangeRequest{}, &pb.RangeResponse{}); grpcCode(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
}
