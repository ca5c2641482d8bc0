package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tenure-compat/harness"
)

// story tells events in short: P key=value@mod, D key@mod; a create is C.
func story(all []*clientv3.Event) (text string) {
	for _, event := range all {
		switch {
		case event.IsCreate():
			text += fmt.Sprintf("C %s=%s@%d ", event.Kv.Key, event.Kv.Value, event.Kv.ModRevision)
		case event.Type == clientv3.EventTypePut:
			text += fmt.Sprintf("P %s=%s@%d ", event.Kv.Key, event.Kv.Value, event.Kv.ModRevision)
		default:
			text += fmt.Sprintf("D %s@%d ", event.Kv.Key, event.Kv.ModRevision)
		}
	}
	return text
}

func TestWatchLive(t *testing.T) {
	_, client, ctx := own(t)
	watch := client.Watch(ctx, "a", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	created := receive(t, "created", watch)
	equal(t, "created", created.Created, true)
	equal(t, "revision when created", created.Header.Revision, 1)
	must(client.Put(ctx, "a", "1"))(t)
	must(client.Put(ctx, "b", "not watched"))(t)
	must(client.Put(ctx, "a", "2"))(t)
	must(client.Delete(ctx, "a"))(t)
	must(client.Put(ctx, "ab", "3"))(t)
	equal(t, "events", story(events(t, watch, 4)), "C a=1@2 P a=2@4 D a@5 C ab=3@6 ")

	// One revision is one response, in the order of the operations.
	must(client.Txn(ctx).Then(clientv3.OpPut("ac", "1"), clientv3.OpPut("aa", "2"), clientv3.OpDelete("ab"), clientv3.OpPut("b", "no")).Commit())(t)
	response := receive(t, "transaction", watch)
	equal(t, "transaction", story(response.Events), "C ac=1@7 C aa=2@7 D ab@7 ")
	equal(t, "revision of a live response", response.Header.Revision, 7)
	// A deleted range comes in the order of the keys.
	must(client.Delete(ctx, "a", clientv3.WithPrefix()))(t)
	equal(t, "deleted range", story(receive(t, "delete", watch).Events), "D aa@8 D ac@8 ")
}

func TestWatchHistory(t *testing.T) {
	_, client, ctx := own(t)
	for i := range 10 {
		must(client.Put(ctx, "a", fmt.Sprint(i)))(t)
	}
	must(client.Delete(ctx, "a"))(t)
	must(client.Put(ctx, "z", ""))(t)
	watch := client.Watch(ctx, "a", clientv3.WithRev(9))
	response := receive(t, "history", watch)
	equal(t, "history", story(response.Events), "P a=7@9 P a=8@10 P a=9@11 D a@12 ")
	equal(t, "revision of a response of history", response.Header.Revision, 13)
	must(client.Put(ctx, "a", "live"))(t)
	equal(t, "after history", story(events(t, watch, 1)), "C a=live@14 ")
}

func TestWatchLongHistory(t *testing.T) {
	_, client, ctx := own(t)
	const rounds, each = 30, 100
	for range rounds {
		var ops []clientv3.Op
		for i := range each {
			ops = append(ops, clientv3.OpPut(fmt.Sprint("k", i), ""))
		}
		must(client.Txn(ctx).Then(ops...).Commit())(t)
	}
	watch := client.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(2))
	seen := 0
	for seen < rounds*each {
		response := receive(t, "history", watch)
		if len(response.Events)%each != 0 {
			t.Fatalf("a revision was split: %d events", len(response.Events))
		}
		for _, event := range response.Events {
			if want := int64(2 + seen/each); event.Kv.ModRevision != want {
				t.Fatalf("event %d is of revision %d, want %d", seen, event.Kv.ModRevision, want)
			}
			seen++
		}
	}
}

func TestWatchFuture(t *testing.T) {
	_, client, ctx := own(t)
	watch := client.Watch(ctx, "a", clientv3.WithRev(4), clientv3.WithCreatedNotify())
	receive(t, "created", watch)
	for range 4 {
		must(client.Put(ctx, "a", ""))(t)
	}
	equal(t, "events", story(events(t, watch, 2)), "P a=@4 P a=@5 ")
}

func TestWatchPrevKV(t *testing.T) {
	_, client, ctx := own(t)
	watch := client.Watch(ctx, "a", clientv3.WithPrevKV(), clientv3.WithRev(2))
	must(client.Put(ctx, "a", "1"))(t)
	must(client.Put(ctx, "a", "2"))(t)
	must(client.Delete(ctx, "a"))(t)
	must(client.Put(ctx, "a", "3"))(t)
	all := events(t, watch, 4)
	equal(t, "before the create", all[0].PrevKv == nil, true)
	equal(t, "before the second put", entryOf(all[1].PrevKv), entry{"a", "1", 2, 2, 1, 0})
	equal(t, "before the delete", entryOf(all[2].PrevKv), entry{"a", "2", 2, 3, 2, 0})
	equal(t, "of the delete", entryOf(all[2].Kv), entry{Key: "a", Mod: 4})
	equal(t, "before the new create", all[3].PrevKv == nil, true)

	// What is compacted is left out without a word.
	must(client.Put(ctx, "a", "4"))(t)
	must(client.Compact(ctx, 6))(t)
	late := events(t, client.Watch(ctx, "a", clientv3.WithPrevKV(), clientv3.WithRev(6)), 1)
	equal(t, "event", story(late), "P a=4@6 ")
	equal(t, "prev_kv that is compacted", late[0].PrevKv == nil, true)
}

func TestWatchFilters(t *testing.T) {
	_, client, ctx := own(t)
	puts := client.Watch(ctx, "a", clientv3.WithFilterDelete(), clientv3.WithRev(2))
	deletes := client.Watch(ctx, "a", clientv3.WithFilterPut(), clientv3.WithRev(2))
	must(client.Put(ctx, "a", "1"))(t)
	must(client.Delete(ctx, "a"))(t)
	must(client.Put(ctx, "a", "2"))(t)
	must(client.Delete(ctx, "a"))(t)
	equal(t, "puts", story(events(t, puts, 2)), "C a=1@2 C a=2@4 ")
	equal(t, "deletes", story(events(t, deletes, 2)), "D a@3 D a@5 ")
}

func TestWatchRanges(t *testing.T) {
	_, client, ctx := own(t)
	from := client.Watch(ctx, "b", clientv3.WithFromKey(), clientv3.WithRev(2))
	between := client.Watch(ctx, "a", clientv3.WithRange("b"), clientv3.WithRev(2))
	everything := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(2))
	for _, key := range []string{"a", "aa", "b", "c"} {
		must(client.Put(ctx, key, ""))(t)
	}
	equal(t, "from b", story(events(t, from, 2)), "C b=@4 C c=@5 ")
	equal(t, "between", story(events(t, between, 2)), "C a=@2 C aa=@3 ")
	equal(t, "everything", story(events(t, everything, 4)), "C a=@2 C aa=@3 C b=@4 C c=@5 ")
}

func TestWatchCompacted(t *testing.T) {
	_, client, ctx := own(t)
	for range 5 {
		must(client.Put(ctx, "a", ""))(t)
	}
	must(client.Compact(ctx, 4))(t)
	watch := client.Watch(ctx, "a", clientv3.WithRev(3))
	response := receive(t, "compacted", watch)
	equal(t, "compact revision", response.CompactRevision, 4)
	if !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		t.Errorf("got %v", response.Err())
	}
	closed(t, "the watch", watch)
	equal(t, "from the compaction on", story(events(t, client.Watch(ctx, "a", clientv3.WithRev(4)), 3)), "P a=@4 P a=@5 P a=@6 ")
}

func TestWatchProgress(t *testing.T) {
	_, client, ctx := own(t)
	watch := client.Watch(ctx, "a", clientv3.WithCreatedNotify())
	receive(t, "created", watch)
	must(client.Put(ctx, "other", ""))(t)
	if err := client.RequestProgress(ctx); err != nil {
		t.Fatal(err)
	}
	response := receive(t, "progress", watch)
	equal(t, "is a progress note", response.IsProgressNotify(), true)
	equal(t, "revision", response.Header.Revision, 2)
}

func TestWatchProgressNotifyInterval(t *testing.T) {
	_, client, ctx := own(t, "--watch-progress-notify-interval=200ms")
	watch := client.Watch(ctx, "a", clientv3.WithProgressNotify())
	response := receive(t, "first note", watch)
	equal(t, "is a progress note", response.IsProgressNotify(), true)
	equal(t, "revision", response.Header.Revision, 1)
	must(client.Put(ctx, "other", ""))(t)
	harness.Eventually(t, "a note of revision 2", func() bool { return receive(t, "note", watch).Header.Revision == 2 })
	must(client.Put(ctx, "a", ""))(t)
	for {
		response := receive(t, "event", watch)
		if len(response.Events) > 0 {
			equal(t, "event", story(response.Events), "C a=@3 ")
			break
		}
	}
}

func TestWatchMany(t *testing.T) {
	client, ctx, prefix := shared(t)
	const count = 200
	revision := must(client.Get(ctx, prefix))(t).Header.Revision
	var watches []clientv3.WatchChan
	for i := range count {
		watches = append(watches, client.Watch(ctx, fmt.Sprint(prefix, i), clientv3.WithRev(revision+1)))
	}
	for i := range count {
		must(client.Put(ctx, fmt.Sprint(prefix, i), ""))(t)
	}
	for i, watch := range watches {
		equal(t, "key", string(events(t, watch, 1)[0].Kv.Key), fmt.Sprint(prefix, i))
	}
}

func TestWatchCancelledByContext(t *testing.T) {
	client, ctx, prefix := shared(t)
	inner, cancel := context.WithCancel(ctx)
	watch := client.Watch(inner, prefix, clientv3.WithCreatedNotify())
	receive(t, "created", watch)
	other := client.Watch(ctx, prefix, clientv3.WithCreatedNotify())
	receive(t, "created", other)
	cancel()
	closed(t, "the cancelled watch", watch)
	must(client.Put(ctx, prefix, ""))(t)
	events(t, other, 1)
}

// stream is a watch stream without the official client.
type stream struct {
	t *testing.T
	pb.Watch_WatchClient
	messages chan *pb.WatchResponse
}

func watchStream(t *testing.T, ctx context.Context, endpoint string) *stream {
	t.Helper()
	s := &stream{t, must(rawClient(t, endpoint).Watch(ctx))(t), make(chan *pb.WatchResponse, 1000)}
	go func() {
		defer close(s.messages)
		for {
			message, err := s.Recv()
			if err != nil {
				return
			}
			s.messages <- message
		}
	}()
	return s
}

func (s *stream) create(request *pb.WatchCreateRequest) {
	s.t.Helper()
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) cancel(id int64) {
	s.t.Helper()
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) progress() {
	s.t.Helper()
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) next(what string) *pb.WatchResponse {
	s.t.Helper()
	return receive(s.t, what, s.messages)
}

// gist is what we compare of a response.
type gist struct {
	ID                int64
	Created, Canceled bool
	Compact           int64
	Reason            string
	Events            int
}

func gistOf(r *pb.WatchResponse) gist {
	return gist{r.WatchId, r.Created, r.Canceled, r.CompactRevision, r.CancelReason, len(r.Events)}
}

func TestWatchStreamIDs(t *testing.T) {
	_, client, ctx := own(t)
	s := watchStream(t, ctx, client.Endpoints()[0])
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	created := s.next("first")
	equal(t, "first", gistOf(created), gist{ID: 0, Created: true})
	equal(t, "revision when created", created.Header.Revision, 1)
	if created.Header.ClusterId == 0 || created.Header.MemberId == 0 || created.Header.RaftTerm == 0 {
		t.Errorf("header lacks something: %v", created.Header)
	}
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 2})
	equal(t, "chosen", gistOf(s.next("chosen")), gist{ID: 2, Created: true})
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	equal(t, "next", gistOf(s.next("next")), gist{ID: 1, Created: true})
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	equal(t, "skips the chosen one", gistOf(s.next("skip")), gist{ID: 3, Created: true})
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 2})
	equal(t, "duplicate", gistOf(s.next("duplicate")), gist{ID: -1, Created: true, Canceled: true, Reason: "mvcc: duplicate watch ID provided on the WatchStream"})
	s.create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	equal(t, "empty range", gistOf(s.next("empty")), gist{ID: -1, Created: true, Canceled: true, Reason: "mvcc: watcher range is empty"})
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: -1})
	equal(t, "negative revision", gistOf(s.next("negative")), gist{ID: -1, Created: true, Canceled: true, Reason: "etcdserver: mvcc: required revision has been compacted"})
	s.create(&pb.WatchCreateRequest{Key: []byte("z"), WatchId: -9})
	equal(t, "negative id", gistOf(s.next("negative id")), gist{ID: -9, Created: true})

	// To cancel what does not exist is not answered: the next answer is that of the next request.
	s.cancel(77)
	s.cancel(2)
	equal(t, "cancelled", gistOf(s.next("cancelled")), gist{ID: 2, Canceled: true})
	s.cancel(2)
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 2})
	equal(t, "id used again", gistOf(s.next("again")), gist{ID: 2, Created: true})

	// Without a key everything is watched from the first key on.
	s.cancel(0)
	s.next("cancelled")
	s.cancel(1)
	s.next("cancelled")
	s.cancel(2)
	s.next("cancelled")
	s.cancel(3)
	s.next("cancelled")
	s.create(&pb.WatchCreateRequest{RangeEnd: []byte{0}, WatchId: 50})
	equal(t, "everything", gistOf(s.next("everything")), gist{ID: 50, Created: true})
	must(client.Put(ctx, "q", ""))(t)
	equal(t, "event", gistOf(s.next("event")), gist{ID: 50, Events: 1})
}

func TestWatchStreamCompactedHeader(t *testing.T) {
	_, client, ctx := own(t)
	for range 4 {
		must(client.Put(ctx, "a", ""))(t)
	}
	must(client.Compact(ctx, 3))(t)
	s := watchStream(t, ctx, client.Endpoints()[0])
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
	created := s.next("created")
	equal(t, "created", gistOf(created), gist{Created: true})
	equal(t, "revision when created", created.Header.Revision, 5)
	cancelled := s.next("cancelled")
	equal(t, "cancelled", gistOf(cancelled), gist{Canceled: true, Compact: 3})
	equal(t, "revision when cancelled", cancelled.Header.Revision, 0)
	if cancelled.Header.ClusterId == 0 {
		t.Error("the header of the cancelled watch lacks its ids")
	}
}

// TestWatchStreamProgress asks for progress: it answers for the whole stream, and only when all watchers have caught up.
func TestWatchStreamProgress(t *testing.T) {
	_, client, ctx := own(t)
	s := watchStream(t, ctx, client.Endpoints()[0])
	// Without a watcher there is no answer: the first is that of the create request.
	s.progress()
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), ProgressNotify: false})
	equal(t, "created", gistOf(s.next("created")), gist{Created: true})
	must(client.Put(ctx, "other", ""))(t)
	s.progress()
	note := s.next("note")
	equal(t, "note", gistOf(note), gist{ID: -1})
	equal(t, "revision", note.Header.Revision, 2)

	// A watcher of the future holds progress back until its revision has come.
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 5})
	equal(t, "created", gistOf(s.next("created")), gist{ID: 1, Created: true})
	s.progress()
	s.cancel(1)
	equal(t, "no note before the cancel", gistOf(s.next("cancelled")), gist{ID: 1, Canceled: true})
	s.progress()
	equal(t, "note", gistOf(s.next("note")), gist{ID: -1})
}

func TestWatchStreamProgressAfterCompacted(t *testing.T) {
	_, client, ctx := own(t)
	for range 4 {
		must(client.Put(ctx, "a", ""))(t)
	}
	must(client.Compact(ctx, 3))(t)
	s := watchStream(t, ctx, client.Endpoints()[0])
	s.create(&pb.WatchCreateRequest{Key: []byte("b")})
	s.next("created")
	s.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
	equal(t, "created", gistOf(s.next("created")), gist{ID: 1, Created: true})
	equal(t, "cancelled", gistOf(s.next("cancelled")), gist{ID: 1, Canceled: true, Compact: 3})
	s.progress()
	s.create(&pb.WatchCreateRequest{Key: []byte("c")})
	notes := 0
	for response := s.next("created"); !response.Created; response = s.next("created") {
		equal(t, "note", gistOf(response), gist{ID: -1})
		notes++
	}
	equal(t, "notes", notes, harness.Pick(t, "progress-after-compacted", 0, 1))
}

func TestWatchStreamFragments(t *testing.T) {
	_, client, ctx := own(t)
	value := strings.Repeat("v", 600<<10)
	for i := range 6 {
		must(client.Put(ctx, fmt.Sprint("k", i), value))(t)
	}
	create := &pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), PrevKv: true}
	whole := watchStream(t, ctx, client.Endpoints()[0])
	whole.create(create)
	whole.next("created")
	split := watchStream(t, ctx, client.Endpoints()[0])
	split.create(&pb.WatchCreateRequest{Key: create.Key, RangeEnd: create.RangeEnd, PrevKv: true, Fragment: true})
	split.next("created")
	// One revision whose events, with what was there before, go beyond one message of 2 MiB.
	must(client.Delete(ctx, "k", clientv3.WithPrefix()))(t)
	seen, fragments := 0, 0
	for seen < 6 {
		response := split.next("fragment")
		seen += len(response.Events)
		if response.Fragment {
			fragments++
		}
		if last := !response.Fragment; last != (seen == 6) {
			t.Errorf("fragment=%v after %d of 6 events", response.Fragment, seen)
		}
	}
	if fragments == 0 {
		t.Error("nothing was split")
	}
	// Without the wish a revision is never split, however large.
	response := whole.next("whole")
	equal(t, "fragment", response.Fragment, false)
	equal(t, "events", len(response.Events), 6)
}

func TestWatchStreamHalfClosed(t *testing.T) {
	_, client, ctx := own(t)
	s := watchStream(t, ctx, client.Endpoints()[0])
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	s.next("created")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	must(client.Put(ctx, "a", ""))(t)
	equal(t, "event after the client has said all", gistOf(s.next("event")), gist{Events: 1})
}

func TestWatchStreamEmptyRequest(t *testing.T) {
	_, client, ctx := own(t)
	s := watchStream(t, ctx, client.Endpoints()[0])
	if err := s.Send(&pb.WatchRequest{}); err != nil {
		t.Fatal(err)
	}
	s.create(&pb.WatchCreateRequest{Key: []byte("a")})
	equal(t, "created all the same", gistOf(s.next("created")), gist{Created: true})
}

// TestWatchSlowReader leaves a stream unread while much is written: what is read later is complete and in order.
func TestWatchSlowReader(t *testing.T) {
	_, client, ctx := own(t)
	stream := must(rawClient(t, client.Endpoints()[0]).Watch(ctx))(t)
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2}}}); err != nil {
		t.Fatal(err)
	}
	const count = 600
	value := strings.Repeat("v", 20<<10)
	for range count {
		must(client.Put(ctx, "k", value))(t)
	}
	seen := int64(0)
	for seen < count {
		message := must(stream.Recv())(t)
		for _, event := range message.Events {
			seen++
			if event.Kv.Version != seen {
				t.Fatalf("version %d instead of %d", event.Kv.Version, seen)
			}
		}
	}
}

func TestWatchRequireLeader(t *testing.T) {
	client, ctx, prefix := shared(t)
	ctx = clientv3.WithRequireLeader(ctx)
	watch := client.Watch(ctx, prefix, clientv3.WithCreatedNotify())
	equal(t, "created", receive(t, "created", watch).Created, true)
	must(client.Put(ctx, prefix, ""))(t)
	events(t, watch, 1)
}
