package client

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tenure-compat/harness"
)

func fetch(t *testing.T, ctx context.Context, method, url string) (int, string, http.Header) {
	t.Helper()
	request := must(http.NewRequestWithContext(ctx, method, url, nil))(t)
	answer := must(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	return answer.StatusCode, string(must(io.ReadAll(answer.Body))(t)), answer.Header
}

func TestHTTPHealth(t *testing.T) {
	_, ctx, _ := shared(t)
	endpoint := harness.Shared(t)
	for path, want := range map[string]string{
		"/health":                             `{"health":"true","reason":""}`,
		"/health?serializable=true":           `{"health":"true","reason":""}`,
		"/health?exclude=NOSPACE":             `{"health":"true","reason":""}`,
		"/livez":                              "ok\n",
		"/livez/serializable_read":            "ok\n",
		"/livez?verbose":                      "[+]serializable_read ok\nok\n",
		"/readyz":                             "ok\n",
		"/readyz/data_corruption":             "ok\n",
		"/readyz/serializable_read":           "ok\n",
		"/readyz/linearizable_read":           "ok\n",
		"/readyz/non_learner":                 "ok\n",
		"/readyz?verbose":                     "[+]data_corruption ok\n[+]linearizable_read ok\n[+]non_learner ok\n[+]serializable_read ok\nok\n",
		"/readyz?verbose&exclude=non_learner": "[+]data_corruption ok\n[+]linearizable_read ok\n[+]serializable_read ok\nok\n",
		"/version":                            `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}`,
	} {
		code, body, _ := fetch(t, ctx, http.MethodGet, endpoint+path)
		equal(t, path+": status", code, 200)
		if strings.Contains(path, "verbose") { // the checks come in no certain order
			lines := strings.SplitAfter(body, "\n")
			slices.Sort(lines)
			body = strings.Join(lines, "")
		}
		equal(t, path, body, want)
	}
	for _, path := range []string{"/health", "/livez", "/readyz", "/version"} {
		code, _, header := fetch(t, ctx, http.MethodPost, endpoint+path)
		equal(t, "POST "+path, code, 405)
		equal(t, "Allow of "+path, header.Get("Allow"), "GET")
	}
	code, _, _ := fetch(t, ctx, http.MethodGet, endpoint+"/nothing-here")
	equal(t, "unknown path", code, 404)
	_, _, header := fetch(t, ctx, http.MethodGet, endpoint+"/version")
	equal(t, "content type of /version", header.Get("Content-Type"), "application/json")
}

// TestHTTPMetrics wants every metric family, with its type, that testdata/metrics.txt lists; what Tenure leaves out on purpose
// must be missing there.
func TestHTTPMetrics(t *testing.T) {
	server, client, ctx := own(t)
	lease := must(client.Grant(ctx, 600))(t).ID
	must(client.Put(ctx, "a", "", clientv3.WithLease(lease)))(t)
	must(client.Put(ctx, "b", ""))(t)
	must(client.Delete(ctx, "b"))(t)
	must(client.Get(ctx, "a"))(t)
	must(client.KeepAliveOnce(ctx, lease))(t)
	must(client.Compact(ctx, 2))(t)
	must(client.Revoke(ctx, lease))(t)
	fetch(t, ctx, http.MethodGet, server.Endpoint+"/health")
	fetch(t, ctx, http.MethodGet, server.Endpoint+"/readyz")
	code, body, header := fetch(t, ctx, http.MethodGet, server.Endpoint+"/metrics")
	equal(t, "status", code, 200)
	if !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("content type: %s", header.Get("Content-Type"))
	}
	types := map[string]string{}
	values := map[string]string{}
	for _, line := range strings.Split(body, "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			types[name] = kind
		} else if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			values[line[:i]] = line[i+1:]
		}
	}
	leftOut := harness.Named(t)
	file := must(os.Open("testdata/metrics.txt"))(t)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, kind, found := strings.Cut(lines.Text(), " ")
		if !found || strings.HasPrefix(name, "#") {
			continue
		}
		if id := leftOut[name]; id != "" {
			kind = harness.Pick(t, id, kind, "")
			delete(leftOut, name)
		}
		if types[name] != kind {
			t.Errorf("%s: got type %q, want %q", name, types[name], kind)
		}
	}
	for name, id := range leftOut {
		t.Errorf("difference %q names %q, which etcd does not have", id, name)
	}
	for name, want := range map[string]string{
		"etcd_server_has_leader":                      "1",
		"etcd_server_is_leader":                       "1",
		"etcd_server_is_learner":                      "0",
		"etcd_debugging_lease_granted_total":          "1",
		"etcd_debugging_lease_revoked_total":          "1",
		"etcd_debugging_lease_renewed_total":          "1",
		"etcd_debugging_server_lease_expired_total":   "0",
		"etcd_debugging_mvcc_current_revision":        "5",
		"etcd_debugging_mvcc_compact_revision":        "2",
		"etcd_mvcc_put_total":                         "2",
		`etcd_server_version{server_version="3.7.3"}`: "1",
		`etcd_cluster_version{cluster_version="3.7"}`: "1",
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}`: "2",
	} {
		equal(t, name, values[name], want)
	}
}
