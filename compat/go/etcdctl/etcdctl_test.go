package etcdctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenure-compat/harness"
)

func TestMain(m *testing.M) { harness.Main(m, "etcdctl") }

// TestScripts runs every script against a fresh server of its own, so that revisions are exact.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("../../etcdctl/*.script")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts found", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".script"), func(t *testing.T) {
			t.Parallel()
			steps, lines, err := parse(path)
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{
				t:          t,
				path:       filepath.Base(path),
				server:     harness.StartServer(t),
				dir:        t.TempDir(),
				kept:       map[string]string{},
				background: map[string]*process{},
			}
			r.kept["endpoint"] = r.server.Endpoint
			r.kept["dir"] = r.dir
			t.Cleanup(func() {
				for _, p := range r.background {
					p.command.Process.Kill()
					<-p.exited
				}
			})
			// COMPAT_REWRITE=1 replaces what does not match by what was printed, for a person to read and correct.
			rewrite := os.Getenv("COMPAT_REWRITE") != ""
			shift := 0
			for _, s := range steps {
				problem := r.run(s)
				if problem == nil {
					continue
				}
				if !rewrite || problem.output == nil {
					t.Fatalf("%s:%d: %s %s\n%s", r.path, s.line, s.verb+s.name, s.text, problem.text)
				}
				for i, line := range problem.output {
					problem.output[i] = generalise(line, r.kept)
				}
				lines = slices.Replace(lines, s.first+shift, s.last+shift, problem.output...)
				shift += len(problem.output) - (s.last - s.first)
			}
			if rewrite {
				if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d commands", len(steps))
		})
	}
}

type runner struct {
	t          *testing.T
	path       string
	server     *harness.Server
	dir        string
	kept       map[string]string
	background map[string]*process
}

// process is a command in the background.
type process struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  *output
	stderr  *output
	exited  chan struct{}
	read    int // lines of stdout that the script has had
}

// output collects what a process writes.
type output struct {
	sync.Mutex
	bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.Buffer.Write(p)
}

// lines are the complete lines so far; of a process that ended, also the rest.
func (o *output) lines(ended bool) []string {
	o.Lock()
	text := o.Buffer.String()
	o.Unlock()
	rest := !strings.HasSuffix(text, "\n")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" || (rest && !ended && len(lines) == 1) {
		return nil
	}
	if rest && !ended {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// problem is an output that is not as expected.
type problem struct {
	text   string
	output []string
}

func (r *runner) run(s *step) *problem {
	fail := func(format string, arguments ...any) *problem {
		return &problem{text: fmt.Sprintf(format, arguments...)}
	}
	var patterns []string
	for _, e := range s.expect {
		if e.server != "" && harness.Pick(r.t, e.difference, "etcd", "tenure") != e.server {
			continue
		}
		patterns = append(patterns, e.text)
	}
	switch s.verb {
	case "@restart":
		r.server.Restart(r.t)
		return nil
	case "@stop":
		r.server.Kill()
		return nil
	case "@start":
		r.server.Start(r.t)
		return nil
	case "$", "$sort", "$until":
		var lines []string
		for deadline := time.Now().Add(harness.Patience); ; time.Sleep(100 * time.Millisecond) {
			p, err := r.start(s)
			if err != nil {
				return fail("%v", err)
			}
			p.stdin.Close()
			select {
			case <-p.exited:
			case <-time.After(harness.Patience):
				p.command.Process.Kill()
				<-p.exited
				return fail("did not end within %v; it printed:\n%s", harness.Patience, strings.Join(p.all(), "\n"))
			}
			lines = p.all()
			if s.verb == "$sort" {
				slices.Sort(lines)
			}
			if matchAll(patterns, lines, r.kept) {
				return nil
			}
			if s.verb != "$until" || time.Now().After(deadline) {
				break
			}
		}
		return mismatch(patterns, lines)
	case "&":
		p, err := r.start(s)
		if err != nil {
			return fail("%v", err)
		}
		r.background[s.name] = p
		return r.await(p, patterns)
	}
	p := r.background[s.name]
	if p == nil {
		return fail("no process of this name")
	}
	switch s.verb {
	case ">":
		text, err := r.fill(s.text)
		if err != nil {
			return fail("%v", err)
		}
		if _, err := io.WriteString(p.stdin, text+"\n"); err != nil {
			return fail("%v", err)
		}
		return r.await(p, patterns)
	case "=":
		return r.await(p, patterns)
	case "!":
		if s.text == "end" { // it ends by itself
		} else if err := p.command.Process.Signal(syscall.SIGINT); err != nil {
			return fail("%v", err)
		}
		select {
		case <-p.exited:
		case <-time.After(harness.Patience):
			return fail("did not end within %v", harness.Patience)
		}
		delete(r.background, s.name)
		if lines := p.all()[p.read:]; !matchAll(patterns, lines, r.kept) {
			return mismatch(patterns, lines)
		}
		return nil
	}
	return fail("unknown verb")
}

func mismatch(patterns, lines []string) *problem {
	printed := make([]string, len(lines))
	for i, line := range lines {
		if printed[i] = line; line == "" {
			printed[i] = "<empty>"
		}
	}
	return &problem{
		text:   fmt.Sprintf("expected:\n%s\nprinted:\n%s", strings.Join(patterns, "\n"), strings.Join(printed, "\n")),
		output: printed,
	}
}

// await waits until a background process has printed as many lines as are expected, and compares.
func (r *runner) await(p *process, patterns []string) *problem {
	if len(patterns) == 0 && os.Getenv("COMPAT_REWRITE") != "" {
		time.Sleep(time.Second) // to learn what it prints
		if lines := p.stdout.lines(false)[p.read:]; len(lines) > 0 {
			p.read += len(lines)
			return mismatch(patterns, lines)
		}
	}
	deadline := time.Now().Add(harness.Patience)
	for {
		lines := p.stdout.lines(false)
		if len(lines) >= p.read+len(patterns) {
			lines = lines[p.read : p.read+len(patterns)]
			p.read += len(patterns)
			if !matchAll(patterns, lines, r.kept) {
				return mismatch(patterns, lines)
			}
			return nil
		}
		if time.Now().After(deadline) {
			return mismatch(patterns, append(lines[p.read:], "(and nothing more within "+harness.Patience.String()+")"))
		}
		select {
		case <-p.exited:
			deadline = time.Now()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *runner) fill(text string) (string, error) {
	var unknown error
	filled := regexp.MustCompile(`<(\w+)>`).ReplaceAllStringFunc(text, func(name string) string {
		value, ok := r.kept[name[1:len(name)-1]]
		if !ok {
			unknown = errors.New("nothing was kept under " + name)
		}
		return value
	})
	return filled, unknown
}

func (r *runner) start(s *step) (*process, error) {
	text, err := r.fill(s.text)
	if err != nil {
		return nil, err
	}
	arguments, err := words(text)
	if err != nil {
		return nil, err
	}
	if len(arguments) == 0 || arguments[0] != "etcdctl" {
		return nil, errors.New("only etcdctl can be run")
	}
	command := exec.CommandContext(context.Background(), os.Getenv("COMPAT_ETCDCTL"), arguments[1:]...)
	command.Dir = r.dir
	command.Env = []string{"ETCDCTL_ENDPOINTS=" + r.server.Endpoint, "ETCDCTL_COMMAND_TIMEOUT=20s", "ETCDCTL_DIAL_TIMEOUT=20s",
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TZ=UTC", "GOMAXPROCS=2"}
	p := &process{command: command, stdout: &output{}, stderr: &output{}, exited: make(chan struct{})}
	command.Stdout, command.Stderr = p.stdout, p.stderr
	if p.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	for _, line := range s.stdin {
		io.WriteString(p.stdin, line+"\n")
	}
	go func() { command.Wait(); close(p.exited) }()
	return p, nil
}

// all is the whole output of a process that ended: stdout, then stderr without the client's log, then the exit code.
func (p *process) all() []string {
	var lines []string
	lines = append(lines, p.stdout.lines(true)...)
	for _, line := range p.stderr.lines(true) {
		if !strings.HasPrefix(line, `{"level":`) && line != "" {
			lines = append(lines, "2> "+line)
		}
	}
	state := p.command.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		lines = append(lines, "[signal "+status.Signal().String()+"]")
	} else if state.ExitCode() != 0 {
		lines = append(lines, fmt.Sprintf("[%d]", state.ExitCode()))
	}
	return lines
}

var generalisations = []struct{ from, to string }{
	{`"(cluster_id|member_id|raft_term)":\d+`, `"$1":<num>`},
	{`"(ClusterID|MemberID|RaftTerm)" : \d+`, `"$1" : <num>`},
	{`lease [0-9a-f]{16}`, `lease <hex>`},
	{`took = [0-9.]+[mµn]?s`, `took = <any>`},
	{`took [0-9.]+[mµn]?s`, `took <any>`},
}

// generalise replaces what changes from run to run by placeholders.
func generalise(line string, kept map[string]string) string {
	for name, value := range kept {
		if len(value) > 6 {
			line = strings.ReplaceAll(line, value, "<"+name+">")
		}
	}
	for _, g := range generalisations {
		line = regexp.MustCompile(g.from).ReplaceAllString(line, g.to)
	}
	return line
}
