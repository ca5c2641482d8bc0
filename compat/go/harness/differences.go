package harness

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Difference is an entry of the file of differences on purpose.
type Difference struct {
	ID     string
	Reason string
	Where  []string // suite/test: each must meet the difference
	Names  []string // of what one server has and the other lacks, where there are many
}

// ReadDifferences reads the small part of TOML that the file uses: [[difference]] tables of strings and lists of strings.
func ReadDifferences(path string) ([]Difference, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []Difference
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		wrong := func(why string) error { return fmt.Errorf("%s:%d: %s: %s", path, number, why, line) }
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if line == "[[difference]]" {
			all = append(all, Difference{})
			continue
		}
		name, value, found := strings.Cut(line, " = ")
		if !found || len(all) == 0 {
			return nil, wrong("not understood")
		}
		entry := &all[len(all)-1]
		switch name {
		case "id", "reason":
			text, err := strconv.Unquote(value)
			if err != nil {
				return nil, wrong("not a string")
			}
			if name == "id" {
				entry.ID = text
			} else {
				entry.Reason = text
			}
		case "where", "names":
			inner, ok := strings.CutPrefix(value, "[")
			inner, closed := strings.CutSuffix(inner, "]")
			if !ok || !closed {
				return nil, wrong("not a list on one line")
			}
			for _, quoted := range strings.Split(inner, ", ") {
				text, err := strconv.Unquote(quoted)
				if err != nil {
					return nil, wrong("not a list of strings")
				}
				if name == "where" {
					entry.Where = append(entry.Where, text)
				} else {
					entry.Names = append(entry.Names, text)
				}
			}
		default:
			return nil, wrong("unknown name")
		}
	}
	seen := map[string]bool{}
	for _, entry := range all {
		if entry.ID == "" || entry.Reason == "" || len(entry.Where) == 0 {
			return nil, fmt.Errorf("%s: difference %q lacks its id, its reason or its place", path, entry.ID)
		}
		if seen[entry.ID] {
			return nil, fmt.Errorf("%s: difference %q is listed twice", path, entry.ID)
		}
		seen[entry.ID] = true
	}
	return all, lines.Err()
}

var differences struct {
	suite string
	list  []Difference
}

func loadDifferences(suite string) (err error) {
	differences.suite = suite
	differences.list, err = ReadDifferences(os.Getenv("COMPAT_DIFFERENCES"))
	return err
}

// Named gives, for each name that a difference of this test lists, the id of the difference.
func Named(t testing.TB) map[string]string {
	all := map[string]string{}
	for _, d := range differences.list {
		if slices.Contains(d.Where, differences.suite+"/"+t.Name()) {
			for _, name := range d.Names {
				all[name] = d.ID
			}
		}
	}
	return all
}

// Pick chooses the expectation of the server under test where the two servers differ on purpose. As the expectations
// exclude each other, a test that passes shows that the difference occurs on Tenure and does not occur on etcd.
func Pick[T any](t testing.TB, id string, etcd, tenure T) T {
	t.Helper()
	if reflect.DeepEqual(etcd, tenure) {
		t.Fatalf("difference %q expects the same of both servers: %v", id, etcd)
	}
	place := differences.suite + "/" + t.Name()
	listed := slices.ContainsFunc(differences.list, func(d Difference) bool {
		return d.ID == id && slices.Contains(d.Where, place)
	})
	if !listed {
		t.Fatalf("difference %q is not listed for %s", id, place)
	}
	t.Cleanup(func() {
		if path := os.Getenv("COMPAT_SEEN"); path != "" && !t.Failed() && !t.Skipped() {
			file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			fmt.Fprintf(file, "%s %s\n", id, place)
		}
	})
	if Kind() == "etcd" {
		return etcd
	}
	return tenure
}
