// Package client runs the official Go client, and bare gRPC where that client hides the wire, against the server under test.
package client

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tenure-compat/harness"
)

func TestMain(m *testing.M) { harness.Main(m, "client") }

// own is a fresh server, for a test that relies on revisions or on anything else that belongs to the whole server.
func own(t *testing.T, flags ...string) (*harness.Server, *clientv3.Client, context.Context) {
	t.Helper()
	t.Parallel()
	server := harness.StartServer(t, flags...)
	return server, harness.Client(t, server.Endpoint), harness.Context(t)
}

// shared is the server that tests share; a test owns the keys under the prefix.
func shared(t *testing.T) (*clientv3.Client, context.Context, string) {
	t.Helper()
	t.Parallel()
	return harness.Client(t, harness.Shared(t)), harness.Context(t), harness.Prefix(t)
}

// raw holds the stubs of one bare connection.
type raw struct {
	pb.KVClient
	pb.WatchClient
	pb.LeaseClient
	pb.MaintenanceClient
	pb.AuthClient
	pb.ClusterClient
}

func rawClient(t *testing.T, endpoint string) raw {
	t.Helper()
	conn := harness.Conn(t, endpoint)
	return raw{pb.NewKVClient(conn), pb.NewWatchClient(conn), pb.NewLeaseClient(conn), pb.NewMaintenanceClient(conn),
		pb.NewAuthClient(conn), pb.NewClusterClient(conn)}
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// refused checks the code and the message of an error to the letter.
func refused(t *testing.T, what string, err error, code codes.Code, message string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted, want %v %q", what, code, message)
		return
	}
	got := status.Convert(err)
	if got.Code() != code || got.Message() != message {
		t.Errorf("%s: got %v %q, want %v %q", what, got.Code(), got.Message(), code, message)
	}
}

// entry is what we compare of a key-value pair.
type entry struct {
	Key, Value                string
	Create, Mod, Version, Own int64
}

func entryOf(kv *mvccpb.KeyValue) entry {
	return entry{string(kv.GetKey()), string(kv.GetValue()), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease()}
}

func keysOf(kvs []*mvccpb.KeyValue) (all string) {
	for _, kv := range kvs {
		all += string(kv.Key) + " "
	}
	return all
}

// receive takes the next message of a channel.
func receive[T any](t *testing.T, what string, channel <-chan T) T {
	t.Helper()
	select {
	case message, ok := <-channel:
		if !ok {
			t.Fatalf("%s: the channel is closed", what)
		}
		return message
	case <-time.After(harness.Patience):
		t.Fatalf("%s: nothing within %v", what, harness.Patience)
	}
	panic("unreachable")
}

// closed waits until a channel is closed, whatever it still delivers.
func closed[T any](t *testing.T, what string, channel <-chan T) {
	t.Helper()
	deadline := time.After(harness.Patience)
	for {
		select {
		case _, ok := <-channel:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatalf("%s: not closed within %v", what, harness.Patience)
		}
	}
}

// events collects the next count events of a watch, however they are spread over responses.
func events(t *testing.T, watch clientv3.WatchChan, count int) (all []*clientv3.Event) {
	t.Helper()
	for len(all) < count {
		response := receive(t, "watch", watch)
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		all = append(all, response.Events...)
	}
	if len(all) > count {
		t.Fatalf("watch: %d events instead of %d", len(all), count)
	}
	return all
}
