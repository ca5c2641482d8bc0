// Command compat-verify says which listed differences did not occur in a run: compat-verify DIFFERENCES SEEN.
package main

import (
	"fmt"
	"os"
	"strings"

	"tenure-compat/harness"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compat-verify DIFFERENCES SEEN")
		os.Exit(2)
	}
	listed, err := harness.ReadDifferences(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil && !os.IsNotExist(err) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		seen[line] = true
	}
	checked, missing := 0, 0
	for _, difference := range listed {
		for _, place := range difference.Where {
			checked++
			if !seen[difference.ID+" "+place] {
				missing++
				fmt.Printf("not shown: difference %q in %s\n", difference.ID, place)
			}
		}
	}
	fmt.Printf("%d passed, %d failed\n", checked-missing, missing)
	if missing > 0 {
		os.Exit(1)
	}
}
