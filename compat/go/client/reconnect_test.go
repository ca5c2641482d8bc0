package client

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"tenure-compat/harness"
)

// TestReconnectWatch cuts the connection of a watcher again and again while another client writes.
func TestReconnectWatch(t *testing.T) {
	client, ctx, prefix := shared(t)
	proxy := harness.StartProxy(t, harness.Shared(t))
	watcher := harness.Client(t, proxy.Endpoint)
	watch := watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithPrevKV())
	receive(t, "created", watch)
	const rounds, each = 5, 20
	for round := range rounds {
		for i := range each {
			if i == each/2 {
				proxy.Down()
			}
			must(client.Put(ctx, prefix+"k", fmt.Sprint(round*each+i)))(t)
		}
		proxy.Up()
		// The watcher must be back before the next cut, or it would see all in one piece.
		for i, event := range events(t, watch, each) {
			number := round*each + i
			equal(t, "value", string(event.Kv.Value), fmt.Sprint(number))
			if number > 0 {
				equal(t, "value before", string(event.PrevKv.GetValue()), fmt.Sprint(number-1))
			}
		}
	}
}

// TestReconnectWatchIntoCompaction compacts what a watcher missed while it was away: it must hear so.
func TestReconnectWatchIntoCompaction(t *testing.T) {
	server, client, ctx := own(t)
	proxy := harness.StartProxy(t, server.Endpoint)
	watch := harness.Client(t, proxy.Endpoint).Watch(ctx, "a", clientv3.WithCreatedNotify())
	receive(t, "created", watch)
	must(client.Put(ctx, "a", ""))(t)
	events(t, watch, 1)
	proxy.Down()
	for range 5 {
		must(client.Put(ctx, "a", ""))(t)
	}
	must(client.Compact(ctx, 6))(t)
	proxy.Up()
	response := receive(t, "compacted", watch)
	equal(t, "compact revision", response.CompactRevision, 6)
	if !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		t.Errorf("got %v", response.Err())
	}
}

func TestReconnectKeepAlive(t *testing.T) {
	client, ctx, prefix := shared(t)
	proxy := harness.StartProxy(t, harness.Shared(t))
	holder := harness.Client(t, proxy.Endpoint)
	s := must(concurrency.NewSession(holder, concurrency.WithTTL(8)))(t)
	must(client.Put(ctx, prefix, "", clientv3.WithLease(s.Lease())))(t)
	for range 3 {
		proxy.Down()
		time.Sleep(200 * time.Millisecond)
		proxy.Up()
		time.Sleep(4 * time.Second)
	}
	select {
	case <-s.Done():
		t.Fatal("the session was lost")
	default:
	}
	equal(t, "alive after more than one life", must(client.Get(ctx, prefix))(t).Count, 1)
}

// TestReconnectTooLate keeps a holder away for longer than its lease: both sides must find it lost.
func TestReconnectTooLate(t *testing.T) {
	client, ctx, prefix := shared(t)
	proxy := harness.StartProxy(t, harness.Shared(t))
	holder := harness.Client(t, proxy.Endpoint)
	s := must(concurrency.NewSession(holder, concurrency.WithTTL(2)))(t)
	must(client.Put(ctx, prefix, "", clientv3.WithLease(s.Lease())))(t)
	proxy.Down()
	harness.Eventually(t, "the server ends the lease", func() bool { return must(client.Get(ctx, prefix))(t).Count == 0 })
	proxy.Up()
	closed(t, "the session of the holder", s.Done())
}
