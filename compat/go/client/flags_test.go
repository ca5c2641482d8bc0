package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"tenure-compat/harness"
)

func TestFlagMaxTxnOps(t *testing.T) {
	_, client, ctx := own(t, "--max-txn-ops=3")
	op := func(key int) clientv3.Op { return clientv3.OpPut(fmt.Sprint(key), "") }
	must(client.Txn(ctx).Then(op(1), op(2), op(3)).Commit())(t)
	_, err := client.Txn(ctx).Then(op(1), op(2), op(3), op(4)).Commit()
	if !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("got %v", err)
	}
}

func TestFlagMaxRequestBytes(t *testing.T) {
	server, client, ctx := own(t, "--max-request-bytes", "10000")
	must(client.Put(ctx, "a", strings.Repeat("v", 9000)))(t)
	_, err := rawClient(t, server.Endpoint).Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 11000)})
	refused(t, "too large", err, codes.InvalidArgument, "etcdserver: request is too large")
}

// TestFlagQuota fills the quota: the alarm is raised, writes are refused, deletes are not, and space can be won back.
func TestFlagQuota(t *testing.T) {
	server, client, ctx := own(t, "--quota-backend-bytes=16777216")
	value := strings.Repeat("v", 1<<20)
	full := false
	for i := 0; i < 100 && !full; i++ {
		_, err := client.Put(ctx, "a", value)
		if full = errors.Is(err, rpctypes.ErrNoSpace); err != nil && !full {
			t.Fatal(err)
		}
	}
	equal(t, "the quota is reached", full, true)
	alarms := must(client.AlarmList(ctx))(t).Alarms
	equal(t, "alarms", len(alarms), 1)
	equal(t, "alarm", alarms[0].Alarm, pb.AlarmType_NOSPACE)
	_, err := client.Put(ctx, "b", "small")
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a small put: %v", err)
	}
	code, body, _ := fetch(t, ctx, http.MethodGet, server.Endpoint+"/health")
	equal(t, "health", fmt.Sprint(code, " ", strings.TrimSpace(body)), `503 {"health":"false","reason":"ALARM NOSPACE"}`)
	code, body, _ = fetch(t, ctx, http.MethodGet, server.Endpoint+"/health?exclude=NOSPACE")
	equal(t, "health without this alarm", fmt.Sprint(code, " ", strings.TrimSpace(body)), `200 {"health":"true","reason":""}`)
	status := must(client.Status(ctx, server.Endpoint))(t)
	equal(t, "quota in the status", status.DbSizeQuota, 16<<20)

	deleted := must(client.Delete(ctx, "a"))(t)
	equal(t, "deleted", deleted.Deleted, 1)
	must(client.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical()))(t)
	must(client.Defragment(ctx, server.Endpoint))(t)
	must(client.AlarmDisarm(ctx, &clientv3.AlarmMember{}))(t)
	must(client.Put(ctx, "b", "small"))(t)
	if after := must(client.Status(ctx, server.Endpoint))(t); after.DbSize >= status.DbSize {
		t.Errorf("size %d before, %d after", status.DbSize, after.DbSize)
	}
}

// TestFlagAutoCompaction lets the server compact what is older than a second.
func TestFlagAutoCompaction(t *testing.T) {
	_, client, ctx := own(t, "--auto-compaction-mode=periodic", "--auto-compaction-retention=1s")
	must(client.Put(ctx, "a", ""))(t)
	must(client.Put(ctx, "a", ""))(t)
	harness.Eventually(t, "the first put is compacted", func() bool {
		must(client.Put(ctx, "a", ""))(t)
		_, err := client.Get(ctx, "a", clientv3.WithRev(2))
		return errors.Is(err, rpctypes.ErrCompacted)
	})
	must(client.Get(ctx, "a"))(t)
}
