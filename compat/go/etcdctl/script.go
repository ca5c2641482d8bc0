// Package etcdctl runs scripts of etcdctl commands with the output that they must have; compat/README.md explains the format.
package etcdctl

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// step is one command of a script with what it must print.
type step struct {
	line   int    // of the command, counted from 1
	verb   string // $ $sort $until & = ! > @
	name   string // of the background process
	text   string // command or argument
	stdin  []string
	expect []expectation
	first  int // the lines [first, last) of the file hold the expectation, counted from 0
	last   int
}

// expectation is one expected line. Where the servers differ on purpose, it holds for one of them.
type expectation struct {
	text       string
	server     string // "", etcd or tenure
	difference string
}

var verbs = regexp.MustCompile(`^(\$sort|\$until|\$|&(\w+)|=(\w+)|!(\w+)|>(\w+)|@restart|@stop|@start)(?: (.*))?$`)

// escaped is an output line that would read as a command.
var escaped = regexp.MustCompile(`^\\([$&=!>@%#<])`)

// parse splits a script into its steps.
func parse(path string) ([]*step, []string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	var steps []*step
	var server, difference string
	for i, line := range lines {
		wrong := func(why string) ([]*step, []string, error) {
			return nil, nil, fmt.Errorf("%s:%d: %s: %s", path, i+1, why, line)
		}
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if directive, ok := strings.CutPrefix(line, "%"); ok {
			word, argument, _ := strings.Cut(directive, " ")
			switch {
			case word == "etcd" && argument != "" && server == "":
				server, difference = "etcd", argument
			case word == "tenure" && server == "etcd":
				server = "tenure"
			case word == "end" && server == "tenure":
				server, difference = "", ""
			default:
				return wrong("misplaced directive")
			}
			if len(steps) > 0 {
				steps[len(steps)-1].last = i + 1
			}
			continue
		}
		if match := verbs.FindStringSubmatch(line); match != nil {
			if server != "" {
				return wrong("a command inside a difference")
			}
			verb, name := match[1], match[2]+match[3]+match[4]+match[5]
			if name != "" {
				verb = verb[:1]
			}
			steps = append(steps, &step{line: i + 1, verb: verb, name: name, text: match[6], first: i + 1, last: i + 1})
			continue
		}
		if len(steps) == 0 {
			return wrong("output before the first command")
		}
		current := steps[len(steps)-1]
		if input, ok := strings.CutPrefix(line, "< "); ok || line == "<" {
			if len(current.expect) > 0 {
				return wrong("input after output")
			}
			current.stdin = append(current.stdin, strings.TrimPrefix(input, "<"))
			current.first, current.last = i+1, i+1
			continue
		}
		current.expect = append(current.expect, expectation{escaped.ReplaceAllString(line, "$1"), server, difference})
		current.last = i + 1
	}
	if server != "" {
		return nil, nil, fmt.Errorf("%s: a difference without %%end", path)
	}
	return steps, lines, nil
}

// words splits a command as a shell would, with single and double quotes.
func words(command string) ([]string, error) {
	var all []string
	var word strings.Builder
	started, quote := false, rune(0)
	for _, r := range command {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == ' ':
			if started {
				all = append(all, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("quote without its end: %s", command)
	}
	if started {
		all = append(all, word.String())
	}
	return all, nil
}

var placeholder = regexp.MustCompile(`<(?:(num|hex|any)(?::(\w+))?(?: (-?\d+)\.\.(-?\d+))?|empty|(\w+))>`)

// match compares one line with its pattern. Placeholders: <num> <hex> <any> match; <num:x> and so on also keep what
// they matched; <num 3..5> bounds the number; <x> is what was kept; <empty> is an empty line.
func match(pattern, line string, kept map[string]string) bool {
	var expression strings.Builder
	type group struct {
		name      string
		low, high string
	}
	var groups []group
	end := 0
	for _, at := range placeholder.FindAllStringSubmatchIndex(pattern, -1) {
		part := func(n int) string {
			if at[2*n] < 0 {
				return ""
			}
			return pattern[at[2*n]:at[2*n+1]]
		}
		kind, known := part(1), part(5)
		if value, ok := kept[known]; known != "" && !ok {
			continue // not a placeholder of ours
		} else if known != "" {
			expression.WriteString(regexp.QuoteMeta(pattern[end:at[0]]) + regexp.QuoteMeta(value))
			end = at[1]
			continue
		}
		expression.WriteString(regexp.QuoteMeta(pattern[end:at[0]]))
		end = at[1]
		switch kind {
		case "num":
			expression.WriteString(`(-?[0-9]+)`)
		case "hex":
			expression.WriteString(`([0-9a-f]+)`)
		case "any":
			expression.WriteString(`(.*?)`)
		default: // <empty>
			continue
		}
		groups = append(groups, group{part(2), part(3), part(4)})
	}
	expression.WriteString(regexp.QuoteMeta(pattern[end:]))
	found := regexp.MustCompile(`^` + expression.String() + `$`).FindStringSubmatch(line)
	if found == nil {
		return false
	}
	for i, g := range groups {
		value := found[i+1]
		if g.low != "" {
			number, err := strconv.ParseInt(value, 10, 64)
			low, _ := strconv.ParseInt(g.low, 10, 64)
			high, _ := strconv.ParseInt(g.high, 10, 64)
			if err != nil || number < low || number > high {
				return false
			}
		}
		if g.name != "" {
			if before, ok := kept[g.name]; ok && before != value {
				return false
			}
			kept[g.name] = value
			if id, err := strconv.ParseUint(value, 16, 64); err == nil && len(value) >= 8 {
				kept[g.name+"dec"] = strconv.FormatUint(id, 10)
			}
		}
	}
	return true
}

// matchAll compares all lines; the pattern "..." stands for any number of lines.
func matchAll(patterns, lines []string, kept map[string]string) bool {
	if len(patterns) == 0 {
		return len(lines) == 0
	}
	if patterns[0] == "..." {
		for skip := 0; skip <= len(lines); skip++ {
			if matchAll(patterns[1:], lines[skip:], kept) {
				return true
			}
		}
		return false
	}
	return len(lines) > 0 && match(patterns[0], lines[0], kept) && matchAll(patterns[1:], lines[1:], kept)
}
