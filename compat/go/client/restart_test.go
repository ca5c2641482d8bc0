package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"tenure-compat/harness"
)

// TestRestartKeepsWhatWasAcknowledged kills the server under load, several times; every write that was answered is there.
func TestRestartKeepsWhatWasAcknowledged(t *testing.T) {
	server, client, ctx := own(t)
	type written struct {
		key      string
		revision int64
	}
	var lock sync.Mutex
	var acknowledged []written
	stop := make(chan struct{})
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("w%d/%05d", worker, i)
				attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
				put, err := client.Put(attempt, key, key)
				cancel()
				if err != nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				lock.Lock()
				acknowledged = append(acknowledged, written{key, put.Header.Revision})
				lock.Unlock()
			}
		})
	}
	count := func() int { lock.Lock(); defer lock.Unlock(); return len(acknowledged) }
	for range 3 {
		before := count()
		harness.Eventually(t, "writes go on", func() bool { return count() > before+100 })
		server.Restart(t)
	}
	close(stop)
	group.Wait()

	got := map[string]int64{}
	all := must(client.Get(ctx, "w", clientv3.WithPrefix()))(t)
	for _, kv := range all.Kvs {
		got[string(kv.Key)] = kv.ModRevision
		equal(t, "value", string(kv.Value), string(kv.Key))
	}
	for _, w := range acknowledged {
		if got[w.key] != w.revision {
			t.Fatalf("%s was acknowledged at revision %d, and is at %d", w.key, w.revision, got[w.key])
		}
	}
	t.Logf("%d writes were acknowledged, %d are there", len(acknowledged), len(all.Kvs))
}

// TestRestartUnderWatch restarts the server under a watch: it resumes with nothing lost, nothing twice.
func TestRestartUnderWatch(t *testing.T) {
	server, client, ctx := own(t)
	watch := client.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(2), clientv3.WithPrevKV())
	const rounds, each = 3, 20
	number := 0
	for range rounds {
		for range each {
			// The put may fail with the connection; it is not repeated by the client, but we know that it was not sent.
			for {
				if _, err := client.Put(ctx, fmt.Sprintf("k%03d", number), ""); err == nil {
					break
				}
				if got, err := client.Get(ctx, fmt.Sprintf("k%03d", number)); err == nil && got.Count == 1 {
					break
				}
			}
			number++
		}
		server.Restart(t)
	}
	revision := int64(0)
	for i, event := range events(t, watch, rounds*each) {
		equal(t, "key", string(event.Kv.Key), fmt.Sprintf("k%03d", i))
		if event.Kv.ModRevision <= revision {
			t.Fatalf("revision %d after %d", event.Kv.ModRevision, revision)
		}
		revision = event.Kv.ModRevision
	}
}

// TestRestartMissedByWatch writes by another client while the watcher's server is down and up again.
func TestRestartMissedByWatch(t *testing.T) {
	server, client, ctx := own(t)
	watch := client.Watch(ctx, "a", clientv3.WithCreatedNotify())
	receive(t, "created", watch)
	must(client.Put(ctx, "a", "before"))(t)
	events(t, watch, 1)
	server.Restart(t)
	other := harness.Client(t, server.Endpoint)
	must(other.Put(ctx, "a", "after"))(t)
	must(other.Put(ctx, "a", "again"))(t)
	equal(t, "events", story(events(t, watch, 2)), "P a=after@3 P a=again@4 ")
}

func TestRestartKeepsLeases(t *testing.T) {
	server, client, ctx := own(t)
	long := must(client.Grant(ctx, 600))(t).ID
	short := must(client.Grant(ctx, 3))(t).ID
	revoked := must(client.Grant(ctx, 600))(t).ID
	must(client.Put(ctx, "long", "", clientv3.WithLease(long)))(t)
	must(client.Put(ctx, "short", "", clientv3.WithLease(short)))(t)
	must(client.Revoke(ctx, revoked))(t)
	server.Restart(t)
	left := must(client.TimeToLive(ctx, long, clientv3.WithAttachedKeys()))(t)
	equal(t, "granted", left.GrantedTTL, 600)
	equal(t, "keys", fmt.Sprintf("%s", left.Keys), "[long]")
	equal(t, "left of the revoked", must(client.TimeToLive(ctx, revoked))(t).TTL, -1)
	harness.Eventually(t, "the short lease ends", func() bool { return must(client.Get(ctx, "short"))(t).Count == 0 })
	equal(t, "the long one lives", must(client.Get(ctx, "long"))(t).Count, 1)
	must(client.Revoke(ctx, long))(t)
	equal(t, "its key is gone", must(client.Get(ctx, "long"))(t).Count, 0)
}

// TestRestartRemainingTime looks at what is left of a lease after a restart.
func TestRestartRemainingTime(t *testing.T) {
	server, client, ctx := own(t)
	lease := must(client.Grant(ctx, 100))(t).ID
	time.Sleep(12 * time.Second)
	killed := time.Now()
	server.Restart(t)
	left := must(client.TimeToLive(ctx, lease))(t).TTL
	outage := int64(time.Since(killed).Seconds()) + 1
	switch harness.Pick(t, "remaining-survives-restart", "anew", "goes on") {
	case "anew":
		if left < 100-outage {
			t.Errorf("%d s are left of 100, though the lease begins anew", left)
		}
	default:
		// What a change of leader adds: the outage, and a short grace.
		if left > 88+outage+3 || left < 60 {
			t.Errorf("%d s are left of 100 after 12 s and an outage of %d s", left, outage)
		}
	}
}

// TestRestartUnderKeepAlive restarts the server under a session, which must live on.
func TestRestartUnderKeepAlive(t *testing.T) {
	server, client, ctx := own(t)
	s := must(concurrency.NewSession(client, concurrency.WithTTL(10)))(t)
	must(client.Put(ctx, "held", "", clientv3.WithLease(s.Lease())))(t)
	mutex := concurrency.NewMutex(s, "lock")
	if err := mutex.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		server.Restart(t)
		time.Sleep(6 * time.Second)
	}
	select {
	case <-s.Done():
		t.Fatal("the session was lost")
	default:
	}
	equal(t, "held", must(client.Get(ctx, "held"))(t).Count, 1)
	answer := must(client.Txn(ctx).If(mutex.IsOwner()).Commit())(t)
	equal(t, "still the owner", answer.Succeeded, true)
	if err := mutex.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestRestartKeepsTheRest keeps the identity, the compaction and the history.
func TestRestartKeepsTheRest(t *testing.T) {
	server, client, ctx := own(t)
	for i := range 5 {
		must(client.Put(ctx, "a", fmt.Sprint(i)))(t)
	}
	must(client.Delete(ctx, "a"))(t)
	must(client.Compact(ctx, 4))(t)
	before := must(client.Get(ctx, "a"))(t).Header
	hash := must(client.HashKV(ctx, server.Endpoint, 0))(t)
	for _, stop := range []func(){server.Kill, server.Stop} {
		stop()
		server.Start(t)
		after := must(client.Get(ctx, "a"))(t).Header
		equal(t, "cluster", after.ClusterId, before.ClusterId)
		equal(t, "member", after.MemberId, before.MemberId)
		equal(t, "revision", after.Revision, 7)
		if after.RaftTerm < before.RaftTerm {
			t.Errorf("term %d after %d", after.RaftTerm, before.RaftTerm)
		}
		equal(t, "old value", string(must(client.Get(ctx, "a", clientv3.WithRev(5)))(t).Kvs[0].Value), "3")
		_, err := client.Get(ctx, "a", clientv3.WithRev(3))
		if err == nil {
			t.Error("the compaction is forgotten")
		}
		again := must(client.HashKV(ctx, server.Endpoint, 0))(t)
		equal(t, "hash", again.Hash, hash.Hash)
		equal(t, "compaction", again.CompactRevision, hash.CompactRevision)
		equal(t, "history", story(events(t, client.Watch(ctx, "a", clientv3.WithRev(5)), 3)), "P a=3@5 P a=4@6 D a@7 ")
	}
}
