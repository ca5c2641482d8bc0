package client

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tenure-compat/harness"
)

func TestStatus(t *testing.T) {
	server, client, ctx := own(t)
	must(client.Put(ctx, "a", ""))(t)
	status := must(client.Status(ctx, server.Endpoint))(t)
	equal(t, "version", status.Version, "3.7.3")
	equal(t, "storage version", status.StorageVersion, "3.7.0")
	equal(t, "leader", status.Leader, status.Header.MemberId)
	equal(t, "revision", status.Header.Revision, 2)
	equal(t, "term", status.RaftTerm, status.Header.RaftTerm)
	equal(t, "learner", status.IsLearner, false)
	equal(t, "errors", len(status.Errors), 0)
	equal(t, "quota", status.DbSizeQuota, 2<<30)
	if status.DbSize <= 0 || status.DbSizeInUse <= 0 || status.DbSizeInUse > status.DbSize {
		t.Errorf("size %d, in use %d", status.DbSize, status.DbSizeInUse)
	}
	if status.RaftIndex == 0 || status.RaftAppliedIndex == 0 || status.RaftAppliedIndex > status.RaftIndex || status.RaftTerm == 0 {
		t.Errorf("index %d, applied %d, term %d", status.RaftIndex, status.RaftAppliedIndex, status.RaftTerm)
	}
	if status.DowngradeInfo == nil || status.DowngradeInfo.Enabled {
		t.Errorf("downgrade: %v", status.DowngradeInfo)
	}
}

func TestMembers(t *testing.T) {
	server, client, ctx := own(t)
	list := must(client.MemberList(ctx))(t)
	equal(t, "members", len(list.Members), 1)
	member := list.Members[0]
	equal(t, "name", member.Name, "compat")
	equal(t, "client URLs", fmt.Sprint(member.ClientURLs), fmt.Sprint([]string{server.Endpoint}))
	equal(t, "peer URLs", len(member.PeerURLs), 1)
	equal(t, "learner", member.IsLearner, false)
	equal(t, "id", member.ID, list.Header.MemberId)
	equal(t, "revision of the header", list.Header.Revision, 0)
	local := must(rawClient(t, server.Endpoint).MemberList(ctx, &pb.MemberListRequest{}))(t)
	equal(t, "not linearizable", len(local.Members), 1)
}

func TestHashKV(t *testing.T) {
	server, client, ctx := own(t)
	for range 4 {
		must(client.Put(ctx, "a", ""))(t)
	}
	now := must(client.HashKV(ctx, server.Endpoint, 0))(t)
	equal(t, "revision of the header", now.Header.Revision, 5)
	equal(t, "revision of the hash", now.HashRevision, 5)
	equal(t, "compaction of a store never compacted", now.CompactRevision, -1)
	equal(t, "the same at the same revision", must(client.HashKV(ctx, server.Endpoint, 5))(t).Hash, now.Hash)
	old := must(client.HashKV(ctx, server.Endpoint, 4))(t)
	equal(t, "revision of an old hash", old.HashRevision, 4)
	if old.Hash == now.Hash {
		t.Error("two revisions have one hash")
	}
	must(client.Put(ctx, "b", ""))(t)
	equal(t, "unchanged by later writes", must(client.HashKV(ctx, server.Endpoint, 5))(t).Hash, now.Hash)
	must(client.Compact(ctx, 3))(t)
	equal(t, "compaction", must(client.HashKV(ctx, server.Endpoint, 0))(t).CompactRevision, 3)
	stub := rawClient(t, server.Endpoint)
	_, err := stub.HashKV(ctx, &pb.HashKVRequest{Revision: 2})
	refused(t, "compacted", err, codes.OutOfRange, "etcdserver: mvcc: required revision has been compacted")
	_, err = stub.HashKV(ctx, &pb.HashKVRequest{Revision: 99})
	refused(t, "future", err, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision")
	if must(stub.Hash(ctx, &pb.HashRequest{}))(t).Header.GetRevision() != 6 {
		t.Error("the header of Hash")
	}
}

func TestAlarms(t *testing.T) {
	_, client, ctx := own(t)
	stub := rawClient(t, client.Endpoints()[0])
	list := must(client.AlarmList(ctx))(t)
	equal(t, "alarms", len(list.Alarms), 0)
	equal(t, "revision of the header", list.Header.Revision, 1)
	none := must(stub.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE}))(t)
	equal(t, "raised none", len(none.Alarms), 0)

	member := list.Header.MemberId
	lease := must(client.Grant(ctx, 600))(t).ID
	must(client.Put(ctx, "a", ""))(t)
	raised := must(stub.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: pb.AlarmType_NOSPACE}))(t)
	equal(t, "raised", len(raised.Alarms), 1)
	equal(t, "of the member", raised.Alarms[0].GetMemberID(), member)
	const noSpace = "etcdserver: mvcc: database space exceeded"
	_, err := stub.Put(ctx, &pb.PutRequest{Key: []byte("a")})
	refused(t, "put", err, codes.ResourceExhausted, noSpace)
	_, err = stub.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{putOp("a", "")}})
	refused(t, "put in a transaction", err, codes.ResourceExhausted, noSpace)
	_, err = stub.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600})
	refused(t, "grant", err, codes.ResourceExhausted, noSpace)
	must(client.Get(ctx, "a"))(t)
	must(client.KeepAliveOnce(ctx, lease))(t)
	must(client.Revoke(ctx, lease))(t)
	must(client.Delete(ctx, "a"))(t)
	status := must(client.Status(ctx, client.Endpoints()[0]))(t)
	// The text form of a message has one blank or two between its fields, as its library pleases.
	equal(t, "errors in the status", strings.Join(strings.Fields(strings.Join(status.Errors, "; ")), " "), fmt.Sprintf("memberID:%d alarm:NOSPACE", member))
	equal(t, "listed by type", len(must(stub.Alarm(ctx, &pb.AlarmRequest{Alarm: pb.AlarmType_NOSPACE}))(t).Alarms), 1)
	equal(t, "listed by the other type", len(must(stub.Alarm(ctx, &pb.AlarmRequest{Alarm: pb.AlarmType_CORRUPT}))(t).Alarms), 0)
	must(stub.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: member, Alarm: pb.AlarmType_NOSPACE}))(t)
	equal(t, "disarmed", len(must(client.AlarmList(ctx))(t).Alarms), 0)
	must(client.Put(ctx, "a", ""))(t)
}

func TestDefragment(t *testing.T) {
	server, client, ctx := own(t)
	must(client.Put(ctx, "a", "1"))(t)
	answer := must(rawClient(t, server.Endpoint).Defragment(ctx, &pb.DefragmentRequest{}))(t)
	equal(t, "header", answer.Header == nil, true)
	equal(t, "value", string(must(client.Get(ctx, "a"))(t).Kvs[0].Value), "1")
}

func TestSnapshot(t *testing.T) {
	server, client, ctx := own(t)
	must(client.Put(ctx, "a", string(bytes.Repeat([]byte("v"), 200<<10))))(t)
	stream := must(rawClient(t, server.Endpoint).Snapshot(ctx, &pb.SnapshotRequest{}))(t)
	var whole []byte
	remaining, last := uint64(1)<<62, uint64(0)
	for {
		message, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "header", message.Header == nil, true)
		equal(t, "version", message.Version, "3.7.0")
		if message.RemainingBytes > remaining {
			t.Errorf("%d bytes remain after %d", message.RemainingBytes, remaining)
		}
		remaining, last = message.RemainingBytes, uint64(len(message.Blob))
		whole = append(whole, message.Blob...)
	}
	equal(t, "remaining at the end", remaining, 0)
	equal(t, "last message", last, sha256.Size)
	equal(t, "size modulo 512", len(whole)%512, sha256.Size)
	body, sum := whole[:len(whole)-sha256.Size], whole[len(whole)-sha256.Size:]
	want := sha256.Sum256(body)
	equal(t, "checksum", bytes.Equal(sum, want[:]), true)
}

func TestAuthIsOff(t *testing.T) {
	client, ctx, _ := shared(t)
	stub := rawClient(t, harness.Shared(t))
	status := must(client.AuthStatus(ctx))(t)
	equal(t, "enabled", status.Enabled, false)
	equal(t, "revision", status.AuthRevision, 1)
	_, err := stub.Authenticate(ctx, &pb.AuthenticateRequest{Name: "root", Password: "secret"})
	refused(t, "authenticate", err, codes.FailedPrecondition, "etcdserver: authentication is not enabled")
}

func TestHealthService(t *testing.T) {
	_, ctx, _ := shared(t)
	health := healthpb.NewHealthClient(harness.Conn(t, harness.Shared(t)))
	equal(t, "serving", must(health.Check(ctx, &healthpb.HealthCheckRequest{}))(t).Status, healthpb.HealthCheckResponse_SERVING)
	_, err := health.Check(ctx, &healthpb.HealthCheckRequest{Service: "etcdserverpb.KV"})
	if grpcCode(err) != codes.NotFound {
		t.Errorf("health of a service by name: %v", err)
	}
	watch := must(health.Watch(ctx, &healthpb.HealthCheckRequest{}))(t)
	equal(t, "watched", must(watch.Recv())(t).Status, healthpb.HealthCheckResponse_SERVING)
}
