package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"tenure-compat/harness"
)

func session(t *testing.T, client *clientv3.Client, ttl int) *concurrency.Session {
	t.Helper()
	return must(concurrency.NewSession(client, concurrency.WithTTL(ttl)))(t)
}

func TestSession(t *testing.T) {
	client, ctx, prefix := shared(t)
	s := session(t, client, 2)
	must(client.Put(ctx, prefix, "", clientv3.WithLease(s.Lease())))(t)
	time.Sleep(4 * time.Second)
	equal(t, "kept alive", must(client.Get(ctx, prefix))(t).Count, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed(t, "session", s.Done())
	equal(t, "gone with the session", must(client.Get(ctx, prefix))(t).Count, 0)

	lost := session(t, client, 3)
	must(client.Revoke(ctx, lost.Lease()))(t)
	closed(t, "session whose lease was revoked", lost.Done())

	orphan := session(t, client, 2)
	must(client.Put(ctx, prefix, "", clientv3.WithLease(orphan.Lease())))(t)
	orphan.Orphan()
	harness.Eventually(t, "an orphan's key is gone", func() bool { return must(client.Get(ctx, prefix))(t).Count == 0 })
}

func TestMutex(t *testing.T) {
	client, ctx, prefix := shared(t)
	var holders, most, total atomic.Int64
	const workers, each = 4, 5
	done := make(chan error, workers)
	for range workers {
		go func() {
			done <- func() error {
				s, err := concurrency.NewSession(client, concurrency.WithTTL(30))
				if err != nil {
					return err
				}
				defer s.Close()
				mutex := concurrency.NewMutex(s, prefix)
				for range each {
					if err := mutex.Lock(ctx); err != nil {
						return err
					}
					if now := holders.Add(1); now > most.Load() {
						most.Store(now)
					}
					total.Add(1)
					// The owner's compare holds while it owns the lock.
					answer, err := client.Txn(ctx).If(mutex.IsOwner()).Then(clientv3.OpGet(prefix)).Commit()
					if err != nil {
						return err
					}
					if !answer.Succeeded {
						return errors.New("the holder is not the owner")
					}
					holders.Add(-1)
					if err := mutex.Unlock(ctx); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range workers {
		if err := receive(t, "worker", done); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "holders at a time", most.Load(), 1)
	equal(t, "holds", total.Load(), workers*each)
}

func TestMutexTryLock(t *testing.T) {
	client, ctx, prefix := shared(t)
	one, two := session(t, client, 30), session(t, client, 30)
	held, wanted := concurrency.NewMutex(one, prefix), concurrency.NewMutex(two, prefix)
	if err := held.TryLock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := wanted.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("try of a held lock: %v", err)
	}
	// Again by the same session is no wait.
	if err := held.Lock(ctx); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if err := wanted.Lock(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited in vain: %v", err)
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := wanted.TryLock(ctx); err != nil {
		t.Errorf("try of a free lock: %v", err)
	}
}

// TestMutexHolderDies frees the lock by the end of the holder's lease, and serves those who wait in their order.
func TestMutexHolderDies(t *testing.T) {
	client, ctx, prefix := shared(t)
	holder := session(t, client, 2)
	if err := concurrency.NewMutex(holder, prefix).Lock(ctx); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 3)
	for i := range 3 {
		s := session(t, client, 30)
		mutex := concurrency.NewMutex(s, prefix)
		go func() {
			if mutex.Lock(ctx) == nil {
				order <- i
				mutex.Unlock(ctx)
			}
		}()
		harness.Eventually(t, fmt.Sprint("candidate ", i, " waits"), func() bool {
			return must(client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count == int64(i+2)
		})
	}
	holder.Orphan() // it renews no more
	for i := range 3 {
		equal(t, "next", receive(t, "next", order), i)
	}
}

func TestElection(t *testing.T) {
	client, ctx, prefix := shared(t)
	one, two := session(t, client, 30), session(t, client, 30)
	first, second := concurrency.NewElection(one, prefix), concurrency.NewElection(two, prefix)
	if _, err := first.Leader(ctx); !errors.Is(err, concurrency.ErrElectionNoLeader) {
		t.Errorf("before the election: %v", err)
	}
	if err := first.Campaign(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	observed := second.Observe(ctx)
	equal(t, "observed", string(receive(t, "leader", observed).Kvs[0].Value), "one")
	won := make(chan error, 1)
	go func() { won <- second.Campaign(ctx, "two") }()
	if err := first.Proclaim(ctx, "one again"); err != nil {
		t.Fatal(err)
	}
	equal(t, "observed", string(receive(t, "leader", observed).Kvs[0].Value), "one again")
	equal(t, "leader", string(must(second.Leader(ctx))(t).Kvs[0].Value), "one again")
	select {
	case err := <-won:
		t.Fatalf("two leaders: %v", err)
	default:
	}
	if err := first.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the second wins", won); err != nil {
		t.Fatal(err)
	}
	equal(t, "observed", string(receive(t, "leader", observed).Kvs[0].Value), "two")
	if err := first.Proclaim(ctx, "too late"); !errors.Is(err, concurrency.ErrElectionNotLeader) {
		t.Errorf("proclaimed after resigning: %v", err)
	}
}

func TestElectionLeaderDies(t *testing.T) {
	client, ctx, prefix := shared(t)
	one, two := session(t, client, 2), session(t, client, 30)
	if err := concurrency.NewElection(one, prefix).Campaign(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	second := concurrency.NewElection(two, prefix)
	won := make(chan error, 1)
	go func() { won <- second.Campaign(ctx, "two") }()
	one.Orphan()
	if err := receive(t, "the second wins", won); err != nil {
		t.Fatal(err)
	}
	equal(t, "leader", string(must(second.Leader(ctx))(t).Kvs[0].Value), "two")
}

func TestSTM(t *testing.T) {
	client, ctx, prefix := shared(t)
	must(client.Put(ctx, prefix+"a", "100"))(t)
	must(client.Put(ctx, prefix+"b", "100"))(t)
	const workers, each = 3, 4
	done := make(chan error, workers)
	for range workers {
		go func() {
			for range each {
				_, err := concurrency.NewSTM(client, func(stm concurrency.STM) error {
					var a, b int
					fmt.Sscan(stm.Get(prefix+"a"), &a)
					fmt.Sscan(stm.Get(prefix+"b"), &b)
					stm.Put(prefix+"a", fmt.Sprint(a-1))
					stm.Put(prefix+"b", fmt.Sprint(b+1))
					return nil
				}, concurrency.WithAbortContext(ctx))
				if err != nil {
					done <- err
					return
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
	equal(t, "a", string(must(client.Get(ctx, prefix+"a"))(t).Kvs[0].Value), "88")
	equal(t, "b", string(must(client.Get(ctx, prefix+"b"))(t).Kvs[0].Value), "112")
}
