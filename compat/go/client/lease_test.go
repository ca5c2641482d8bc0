package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"tenure-compat/harness"
)

func TestLeaseLife(t *testing.T) {
	_, client, ctx := own(t)
	granted := must(client.Grant(ctx, 600))(t)
	equal(t, "ttl", granted.TTL, 600)
	equal(t, "a grant makes no revision", granted.ResponseHeader.Revision, 1)
	if granted.ID <= 0 {
		t.Errorf("the server chose the id %d", granted.ID)
	}
	must(client.Put(ctx, "b", "1", clientv3.WithLease(granted.ID)))(t)
	must(client.Put(ctx, "a", "2", clientv3.WithLease(granted.ID)))(t)

	left := must(client.TimeToLive(ctx, granted.ID))(t)
	equal(t, "granted", left.GrantedTTL, 600)
	equal(t, "keys without asking", len(left.Keys), 0)
	if left.TTL > 600 || left.TTL < 500 {
		t.Errorf("left: %d", left.TTL)
	}
	left = must(client.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys()))(t)
	slices.SortFunc(left.Keys, slices.Compare)
	equal(t, "keys", fmt.Sprintf("%s", left.Keys), "[a b]")

	watch := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(4))
	revoked := must(client.Revoke(ctx, granted.ID))(t)
	equal(t, "revision of the revoke", revoked.Header.Revision, 4)
	equal(t, "one revision, in the order of the keys", story(receive(t, "deletes", watch).Events), "D a@4 D b@4 ")
	_, err := client.Revoke(ctx, granted.ID)
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("revoked again: %v", err)
	}
	empty := must(client.Grant(ctx, 600))(t)
	equal(t, "a lease without keys ends without revision", must(client.Revoke(ctx, empty.ID))(t).Header.Revision, 4)
}

func TestLeaseKeysMove(t *testing.T) {
	client, ctx, prefix := shared(t)
	one, two := must(client.Grant(ctx, 600))(t).ID, must(client.Grant(ctx, 600))(t).ID
	keys := func(id clientv3.LeaseID) int {
		return len(must(client.TimeToLive(ctx, id, clientv3.WithAttachedKeys()))(t).Keys)
	}
	for i := range 3 {
		must(client.Put(ctx, fmt.Sprint(prefix, i), "", clientv3.WithLease(one)))(t)
	}
	equal(t, "keys of the first", keys(one), 3)
	must(client.Put(ctx, prefix+"0", ""))(t)                                // leaves the lease
	must(client.Put(ctx, prefix+"1", "", clientv3.WithLease(two)))(t)       // goes to the other
	must(client.Put(ctx, prefix+"2", "new", clientv3.WithIgnoreLease()))(t) // stays
	equal(t, "keys of the first", keys(one), 1)
	equal(t, "keys of the second", keys(two), 1)
	must(client.Delete(ctx, prefix+"1"))(t)
	equal(t, "keys after a delete", keys(two), 0)
	must(client.Revoke(ctx, one))(t)
	equal(t, "what is left", keysOf(must(client.Get(ctx, prefix, clientv3.WithPrefix()))(t).Kvs), prefix+"0 ")
	must(client.Revoke(ctx, two))(t)
	equal(t, "what is left", must(client.Get(ctx, prefix, clientv3.WithPrefix()))(t).Count, 1)
}

func TestLeaseGrantMinimum(t *testing.T) {
	client, ctx, _ := shared(t)
	for _, ttl := range []int64{1, 0, -5} {
		granted := must(client.Grant(ctx, ttl))(t)
		equal(t, fmt.Sprint("granted for ", ttl), granted.TTL, harness.Pick[int64](t, "min-ttl-1s", 2, 1))
	}
	equal(t, "granted for 2", must(client.Grant(ctx, 2))(t).TTL, 2)
}

func TestLeaseGrantErrors(t *testing.T) {
	_, client, ctx := own(t)
	stub := rawClient(t, client.Endpoints()[0])
	for _, id := range []int64{1, 77, -9, math.MinInt64, math.MaxInt64} {
		equal(t, "id", must(stub.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: 600}))(t).ID, id)
		_, err := stub.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: 600})
		refused(t, "granted twice", err, codes.FailedPrecondition, "etcdserver: lease already exists")
	}
	_, err := stub.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 9_000_000_001})
	refused(t, "too long", err, codes.OutOfRange, "etcdserver: too large lease TTL")
	equal(t, "the longest", must(stub.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 9_000_000_000}))(t).TTL, 9_000_000_000)
	_, err = stub.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 5})
	refused(t, "revoke of nothing", err, codes.NotFound, "etcdserver: requested lease not found")
	_, err = stub.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{})
	refused(t, "revoke of 0", err, codes.NotFound, "etcdserver: requested lease not found")

	gone := must(stub.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 5, Keys: true}))(t)
	equal(t, "left of nothing", gone.TTL, -1)
	equal(t, "granted of nothing", gone.GrantedTTL, 0)
	equal(t, "id", gone.ID, 5)
	equal(t, "revision", gone.Header.GetRevision(), 1)

	ids := map[int64]bool{}
	list := must(stub.LeaseLeases(ctx, &pb.LeaseLeasesRequest{}))(t)
	for _, lease := range list.Leases {
		ids[lease.ID] = true
	}
	equal(t, "leases", len(list.Leases), 6)
	equal(t, "lists a negative id", ids[-9], true)

	// A revoked id can be granted anew.
	must(stub.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 77}))(t)
	must(stub.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 77, TTL: 5}))(t)
}

func TestLeaseLeasesSorted(t *testing.T) {
	_, client, ctx := own(t)
	var want []clientv3.LeaseID
	for _, ttl := range []int64{300, 100, 200} {
		want = append(want, must(client.Grant(ctx, ttl))(t).ID)
	}
	want = []clientv3.LeaseID{want[1], want[2], want[0]}
	for i, lease := range must(client.Leases(ctx))(t).Leases {
		equal(t, fmt.Sprint("lease ", i), lease.ID, want[i])
	}
}

// TestLeaseExpiry lets a lease end while a watcher looks on, and makes sure that it ends neither early nor never.
func TestLeaseExpiry(t *testing.T) {
	client, ctx, prefix := shared(t)
	watch := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithPrevKV())
	receive(t, "created", watch)
	sent := time.Now()
	lease := must(client.Grant(ctx, 2))(t).ID
	must(client.Txn(ctx).Then(clientv3.OpPut(prefix+"a", "1", clientv3.WithLease(lease)), clientv3.OpPut(prefix+"b", "2", clientv3.WithLease(lease))).Commit())(t)
	equal(t, "puts", len(receive(t, "puts", watch).Events), 2)
	response := receive(t, "expiry", watch)
	if lived := time.Since(sent); lived < 2*time.Second {
		t.Errorf("it ended after %v", lived)
	}
	equal(t, "deletes of one revision", len(response.Events), 2)
	for i, event := range response.Events {
		equal(t, "type", event.Type, clientv3.EventTypeDelete)
		equal(t, "revision", event.Kv.ModRevision, response.Events[0].Kv.ModRevision)
		equal(t, "value before", string(event.PrevKv.Value), []string{"1", "2"}[i])
	}
	equal(t, "left", must(client.TimeToLive(ctx, lease))(t).TTL, -1)
	_, err := client.KeepAliveOnce(ctx, lease)
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("renewed after its end: %v", err)
	}
	_, err = client.Put(ctx, prefix, "", clientv3.WithLease(lease))
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("put after its end: %v", err)
	}
}

func TestLeaseExpiryOfMany(t *testing.T) {
	client, ctx, prefix := shared(t)
	const count = 200
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			for i := worker; i < count; i += 10 {
				lease, err := client.Grant(ctx, 2)
				if err == nil {
					_, err = client.Put(ctx, fmt.Sprint(prefix, i), "", clientv3.WithLease(lease.ID))
				}
				// A slow machine may take longer than the lease lasts.
				if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	harness.Eventually(t, "all keys are gone", func() bool {
		return must(client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count == 0
	})
}

// TestLeaseLastSecond looks at a lease until it is gone.
func TestLeaseLastSecond(t *testing.T) {
	client, ctx, _ := shared(t)
	lease := must(client.Grant(ctx, 2))(t).ID
	zeros := false
	last := int64(3)
	harness.Eventually(t, "the lease ends", func() bool {
		left := must(client.TimeToLive(ctx, lease))(t).TTL
		if left > last || left < -1 {
			t.Errorf("%d after %d", left, last)
		}
		last = left
		zeros = zeros || left == 0
		return left == -1
	})
	equal(t, "0 was answered for a living lease", zeros, harness.Pick(t, "last-second-is-1", true, false))
}

func TestLeaseKeepAlive(t *testing.T) {
	client, ctx, prefix := shared(t)
	lease := must(client.Grant(ctx, 2))(t).ID
	must(client.Put(ctx, prefix, "", clientv3.WithLease(lease)))(t)
	inner, stop := context.WithCancel(ctx)
	answers := must(client.KeepAlive(inner, lease))(t)
	started := time.Now()
	for time.Since(started) < 5*time.Second {
		answer := receive(t, "renewal", answers)
		equal(t, "id", answer.ID, lease)
		equal(t, "ttl", answer.TTL, 2)
	}
	equal(t, "alive after more than two lives", must(client.Get(ctx, prefix))(t).Count, 1)
	stop()
	closed(t, "renewals", answers)
	harness.Eventually(t, "the key is gone", func() bool { return must(client.Get(ctx, prefix))(t).Count == 0 })
}

func TestLeaseKeepAliveOfRevoked(t *testing.T) {
	client, ctx, _ := shared(t)
	lease := must(client.Grant(ctx, 600))(t).ID
	answers := must(client.KeepAlive(ctx, lease))(t)
	receive(t, "renewal", answers)
	must(client.Revoke(ctx, lease))(t)
	// The client renews a third into the life of a lease; a short one shows the end soon.
	short := must(client.Grant(ctx, 3))(t).ID
	ending := must(client.KeepAlive(ctx, short))(t)
	receive(t, "renewal", ending)
	must(client.Revoke(ctx, short))(t)
	closed(t, "renewals of a revoked lease", ending)
	missing := must(client.KeepAlive(ctx, 12345))(t)
	closed(t, "renewals of a lease that never was", missing)
}

func TestLeaseKeepAliveOnce(t *testing.T) {
	client, ctx, prefix := shared(t)
	lease := must(client.Grant(ctx, 3))(t).ID
	must(client.Put(ctx, prefix, "", clientv3.WithLease(lease)))(t)
	for range 5 {
		time.Sleep(time.Second)
		equal(t, "ttl", must(client.KeepAliveOnce(ctx, lease))(t).TTL, 3)
	}
	equal(t, "alive", must(client.Get(ctx, prefix))(t).Count, 1)
	_, err := client.KeepAliveOnce(ctx, 12345)
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("of a lease that never was: %v", err)
	}
}

func TestLeaseKeepAliveStream(t *testing.T) {
	_, client, ctx := own(t)
	stub := rawClient(t, client.Endpoints()[0])
	one, two := must(client.Grant(ctx, 600))(t).ID, must(client.Grant(ctx, 700))(t).ID
	stream := must(stub.LeaseKeepAlive(ctx))(t)
	renew := func(id clientv3.LeaseID) *pb.LeaseKeepAliveResponse {
		t.Helper()
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			t.Fatal(err)
		}
		answer := must(stream.Recv())(t)
		equal(t, "id", answer.ID, int64(id))
		if answer.Header.GetClusterId() == 0 || answer.Header.GetMemberId() == 0 || answer.Header.GetRaftTerm() == 0 || answer.Header.GetRevision() != 1 {
			t.Errorf("header: %v", answer.Header)
		}
		return answer
	}
	equal(t, "one", renew(one).TTL, 600)
	equal(t, "two", renew(two).TTL, 700)
	equal(t, "missing", renew(12345).TTL, 0)
	equal(t, "id 0", renew(0).TTL, 0)
	equal(t, "one after the missing", renew(one).TTL, 600)

	// Several before reading an answer come back in order.
	for _, id := range []clientv3.LeaseID{two, 5, one} {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int64{700, 0, 600} {
		equal(t, "ttl", must(stream.Recv())(t).TTL, want)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("after half close: %v", err)
	}
}

// TestLeaseRenewalRolls shows that a renewal starts the time anew.
func TestLeaseRenewalRolls(t *testing.T) {
	client, ctx, _ := shared(t)
	lease := must(client.Grant(ctx, 100))(t).ID
	time.Sleep(2500 * time.Millisecond)
	before := must(client.TimeToLive(ctx, lease))(t).TTL
	if before > 97 {
		t.Errorf("%d s left after 2.5 s of 100", before)
	}
	sent := time.Now()
	equal(t, "renewed", must(client.KeepAliveOnce(ctx, lease))(t).TTL, 100)
	left := must(client.TimeToLive(ctx, lease))(t).TTL
	if least := 98 - int64(time.Since(sent).Seconds()); left < least || left > 100 {
		t.Errorf("%d s left after a renewal, want at least %d", left, least)
	}
}

// TestLeaseKeepAliveMany has one client renew many short leases on its one stream.
func TestLeaseKeepAliveMany(t *testing.T) {
	client, ctx, prefix := shared(t)
	const count = 100
	for i := range count {
		lease := must(client.Grant(ctx, 4))(t).ID
		must(client.Put(ctx, fmt.Sprint(prefix, i), "", clientv3.WithLease(lease)))(t)
		answers := must(client.KeepAlive(ctx, lease))(t)
		go func() {
			for range answers {
			}
		}()
	}
	time.Sleep(7 * time.Second)
	equal(t, "alive", must(client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count, count)
}

// TestLeaseKeepAliveThousands has one client renew so many leases that their small frames fill a connection's window:
// none is lost, and the connection stays.
func TestLeaseKeepAliveThousands(t *testing.T) {
	_, client, ctx := own(t)
	const count = 6000
	ids := make(chan clientv3.LeaseID, count)
	var granting sync.WaitGroup
	for range 32 {
		granting.Go(func() {
			for len(ids) < count-32 {
				granted, err := client.Grant(ctx, 20)
				if err != nil {
					t.Error(err)
					return
				}
				ids <- granted.ID
			}
		})
	}
	granting.Wait()
	close(ids)
	var renewing sync.WaitGroup
	renewed, stop := 0, make(chan struct{})
	var mutex sync.Mutex
	for id := range ids {
		answers := must(client.KeepAlive(ctx, id))(t)
		renewing.Go(func() {
			for seen := 0; seen < 2; seen++ {
				select {
				case answer := <-answers:
					if answer == nil {
						t.Errorf("lease %x was given up", id)
						return
					}
				case <-stop:
					return
				}
			}
			mutex.Lock()
			renewed++
			mutex.Unlock()
		})
	}
	go func() {
		<-ctx.Done()
		close(stop)
	}()
	renewing.Wait()
	if renewed < count-64 {
		t.Errorf("%d leases were renewed twice", renewed)
	}
	equal(t, "leases left", len(must(client.Leases(ctx))(t).Leases) >= renewed, true)
}
