package client

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"

	"tenure-compat/harness"
)

// TestKubernetes uses the server as an API server does.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	ctx := harness.Context(t)
	client := must(kubernetes.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Logger: zap.NewNop()}))(t)
	defer client.Close()
	k := client.Kubernetes

	empty := must(k.List(ctx, "/pods/", kubernetes.ListOptions{}))(t)
	equal(t, "revision of an empty list", empty.Revision, 1)
	equal(t, "missing", must(k.Get(ctx, "/pods/a", kubernetes.GetOptions{}))(t).KV == nil, true)

	created := must(k.OptimisticPut(ctx, "/pods/a", []byte("1"), 0, kubernetes.PutOptions{}))(t)
	equal(t, "created", created.Succeeded, true)
	equal(t, "revision", created.Revision, 2)
	again := must(k.OptimisticPut(ctx, "/pods/a", []byte("x"), 0, kubernetes.PutOptions{GetOnFailure: true}))(t)
	equal(t, "created twice", again.Succeeded, false)
	equal(t, "what is there", entryOf(again.KV), entry{"/pods/a", "1", 2, 2, 1, 0})
	equal(t, "revision of a failed put", again.Revision, 2)
	blind := must(k.OptimisticPut(ctx, "/pods/a", []byte("x"), 0, kubernetes.PutOptions{}))(t)
	equal(t, "not asked for", blind.KV == nil, true)

	watch := client.Watch(clientv3.WithRequireLeader(ctx), "/pods/", clientv3.WithPrefix(), clientv3.WithRev(created.Revision+1), clientv3.WithPrevKV(), clientv3.WithProgressNotify())
	changed := must(k.OptimisticPut(ctx, "/pods/a", []byte("2"), 2, kubernetes.PutOptions{}))(t)
	equal(t, "changed", changed.Succeeded, true)
	stale := must(k.OptimisticPut(ctx, "/pods/a", []byte("3"), 2, kubernetes.PutOptions{GetOnFailure: true}))(t)
	equal(t, "stale change", stale.Succeeded, false)
	equal(t, "what is there", string(stale.KV.Value), "2")
	lease := must(client.Grant(ctx, 600))(t).ID
	leased := must(k.OptimisticPut(ctx, "/pods/b", []byte("1"), 0, kubernetes.PutOptions{LeaseID: lease}))(t)
	equal(t, "with a lease", leased.Succeeded, true)

	refusedDelete := must(k.OptimisticDelete(ctx, "/pods/a", 2, kubernetes.DeleteOptions{GetOnFailure: true}))(t)
	equal(t, "stale delete", refusedDelete.Succeeded, false)
	equal(t, "what is there", refusedDelete.KV.ModRevision, 3)
	deleted := must(k.OptimisticDelete(ctx, "/pods/a", 3, kubernetes.DeleteOptions{GetOnFailure: true}))(t)
	equal(t, "delete", deleted.Succeeded, true)
	equal(t, "revision of the delete", deleted.Revision, 5)
	must(client.Revoke(ctx, lease))(t)
	all := events(t, watch, 4)
	equal(t, "watched", story(all), "P /pods/a=2@3 C /pods/b=1@4 D /pods/a@5 D /pods/b@6 ")
	equal(t, "value before", string(all[2].PrevKv.Value), "2")

	for i := range 10 {
		must(k.OptimisticPut(ctx, fmt.Sprint("/pods/", i), []byte("v"), 0, kubernetes.PutOptions{}))(t)
	}
	must(k.OptimisticPut(ctx, "/pods0", []byte("beyond the prefix"), 0, kubernetes.PutOptions{}))(t)
	equal(t, "count", must(k.Count(ctx, "/pods/", kubernetes.CountOptions{}))(t), 10)
	page := must(k.List(ctx, "/pods/", kubernetes.ListOptions{Limit: 4}))(t)
	equal(t, "first page", keysOf(page.Kvs), "/pods/0 /pods/1 /pods/2 /pods/3 ")
	equal(t, "count", page.Count, 10)
	equal(t, "revision", page.Revision, 17)
	must(k.OptimisticDelete(ctx, "/pods/5", 12, kubernetes.DeleteOptions{}))(t)
	next := must(k.List(ctx, "/pods/", kubernetes.ListOptions{Limit: 4, Revision: page.Revision, Continue: "/pods/3\x00"}))(t)
	equal(t, "second page, as of the first", keysOf(next.Kvs), "/pods/4 /pods/5 /pods/6 /pods/7 ")
	equal(t, "count of the rest", next.Count, 6)
	equal(t, "old", string(must(k.Get(ctx, "/pods/a", kubernetes.GetOptions{Revision: 3}))(t).KV.Value), "2")

	must(client.Compact(ctx, 17))(t)
	_, err := k.List(ctx, "/pods/", kubernetes.ListOptions{Revision: 16})
	if !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("list of a compacted revision: %v", err)
	}
	_, err = k.Get(ctx, "/pods/a", kubernetes.GetOptions{Revision: 999})
	if !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("get of a future revision: %v", err)
	}

	// The API server asks for progress to serve consistent reads from its cache.
	if err := client.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
		t.Fatal(err)
	}
	for {
		response := receive(t, "progress", watch)
		if response.IsProgressNotify() {
			equal(t, "progress", response.Header.Revision, 18)
			break
		}
	}
	status := must(client.Status(ctx, server.Endpoint))(t)
	equal(t, "version", status.Version, "3.7.3")
}
