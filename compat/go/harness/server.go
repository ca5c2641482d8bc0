// Package harness starts and stops the servers under test and knows which differences between them are meant.
//
// Every test is written once and runs against each kind of server. The environment says which:
//
//	COMPAT_SERVER      etcd or tenure
//	COMPAT_SERVER_CMD  the command line of a server; {name}, {data}, {client} and {peer} are filled in
//	COMPAT_ENDPOINT    a running server for the tests that can share one (else one is started from the command)
//	COMPAT_DIFFERENCES the file of differences on purpose
//	COMPAT_SEEN        the file to which the differences that occurred are appended
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is the upper bound of every wait. It decides only how long a broken server keeps us waiting.
const Patience = 30 * time.Second

// Kind is the server under test: "etcd" or "tenure".
func Kind() string { return os.Getenv("COMPAT_SERVER") }

// Server is one server process with a data directory of its own. It outlives kills: Start it again on the same data.
type Server struct {
	Endpoint string // http://127.0.0.1:port

	args    []string
	dir     string
	process *exec.Cmd
	exited  chan struct{}
}

// StartServer starts a fresh server and stops it when the test ends. More flags may be appended.
func StartServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	s, err := newServer(flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if log := s.LogTail(); log != "" {
				t.Logf("the server's last words:\n%s", log)
			}
		}
		s.remove()
	})
	return s
}

func newServer(flags []string) (*Server, error) {
	template := strings.Fields(os.Getenv("COMPAT_SERVER_CMD"))
	if len(template) == 0 {
		return nil, errors.New("COMPAT_SERVER_CMD is not set; run scripts/compat.sh")
	}
	var last error
	// Another process may take a free port between our look and the server's listen: then try other ports.
	for range 3 {
		dir, err := os.MkdirTemp("", "compat-")
		if err != nil {
			return nil, err
		}
		client, peer, err := freePorts()
		if err != nil {
			return nil, err
		}
		fill := strings.NewReplacer(
			"{name}", "compat",
			"{data}", filepath.Join(dir, "data"),
			"{client}", "http://"+client,
			"{peer}", "http://"+peer,
		)
		s := &Server{Endpoint: "http://" + client, dir: dir}
		for _, word := range append(append([]string{}, template...), flags...) {
			s.args = append(s.args, fill.Replace(word))
		}
		if last = s.start(); last == nil {
			return s, nil
		}
		last = fmt.Errorf("%w\n%s", last, s.LogTail())
		s.remove()
	}
	return nil, last
}

func freePorts() (string, string, error) {
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer a.Close()
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer b.Close()
	return a.Addr().String(), b.Addr().String(), nil
}

// start runs the process and waits until it answers /health.
func (s *Server) start() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process = exec.Command(s.args[0], s.args[1:]...)
	s.process.Stdout, s.process.Stderr = log, log
	s.process.SysProcAttr = dieWithParent()
	if err := s.process.Start(); err != nil {
		return err
	}
	process, exited := s.process, make(chan struct{})
	s.exited = exited
	go func() { process.Wait(); close(exited) }()

	deadline := time.Now().Add(Patience)
	for time.Now().Before(deadline) {
		select {
		case <-exited:
			return fmt.Errorf("%s ended while starting: %v", s.args[0], process.ProcessState)
		default:
		}
		if answer, err := http.Get(s.Endpoint + "/health"); err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.signal(syscall.SIGKILL)
	return fmt.Errorf("%s did not become healthy within %v", s.args[0], Patience)
}

func (s *Server) signal(sig syscall.Signal) {
	if s.process == nil {
		return
	}
	s.process.Process.Signal(sig)
	select {
	case <-s.exited:
	case <-time.After(Patience):
		s.process.Process.Kill()
		<-s.exited
	}
	s.process = nil
}

// Kill ends the process at once, as kill -9 does.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Stop asks the process to end (SIGTERM) and waits for it.
func (s *Server) Stop() { s.signal(syscall.SIGTERM) }

// Start runs the server again on the data that it left.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Restart kills the server and starts it again.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	s.Start(t)
}

// LogTail is the end of what the server wrote.
func (s *Server) LogTail() string {
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return ""
	}
	if len(log) > 4000 {
		log = log[len(log)-4000:]
	}
	return string(log)
}

func (s *Server) remove() {
	s.Kill()
	os.RemoveAll(s.dir)
}

var shared struct {
	sync.Once
	server   *Server
	endpoint string
	err      error
}

// Shared is the endpoint of a server that many tests use at once. Such a test owns only keys under Prefix(t), and
// can rely neither on the revision nor on anything else that belongs to the whole server.
func Shared(t testing.TB) string {
	t.Helper()
	shared.Do(func() {
		if shared.endpoint = os.Getenv("COMPAT_ENDPOINT"); shared.endpoint != "" {
			return
		}
		if shared.server, shared.err = newServer(nil); shared.err == nil {
			shared.endpoint = shared.server.Endpoint
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.endpoint
}

// Main runs the tests of one suite and stops the shared server.
func Main(m *testing.M, suite string) {
	if Kind() != "etcd" && Kind() != "tenure" {
		fmt.Fprintln(os.Stderr, "COMPAT_SERVER must be etcd or tenure; run scripts/compat.sh")
		os.Exit(2)
	}
	if err := loadDifferences(suite); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	if shared.server != nil {
		shared.server.remove()
	}
	os.Exit(code)
}

// Prefix is a key prefix that no other test uses.
func Prefix(t testing.TB) string { return t.Name() + "/" }

// Context ends with the test, at the latest after twice our patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	t.Cleanup(cancel)
	return ctx
}
