// Command testcount says what a run of `go test -json` comes to: which tests
// were skipped and why, and as its very last line "belay: N passed, N failed".
//
//	testcount [-noskip] [-output] FILE
//
// With -noskip a skipped test is a failure; that is how CI holds the promise
// that nothing is left out there. With -output it also prints the output of
// what failed, for runs that nothing else has printed. It exits 1 when
// anything failed.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
)

// event is the part of a line of `go test -json` that is used here.
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"`
	Test    string `json:"Test"`
	Output  string `json:"Output"`
}

// name identifies a test, or a package when no test is named.
type name struct{ pkg, test string }

func main() {
	noskip := flag.Bool("noskip", false, "a skipped test is a failure")
	output := flag.Bool("output", false, "print the output of what failed")
	flag.Parse()
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
		os.Exit(2)
	}
	defer file.Close()
	c := read(bufio.NewScanner(file))
	if !c.print(*noskip, *output) {
		os.Exit(1)
	}
}

// count is what was read from one run.
type count struct {
	passed  int
	failed  []name
	skipped []name
	said    map[name]*strings.Builder
}

func read(lines *bufio.Scanner) *count {
	lines.Buffer(nil, 16<<20)
	c := &count{said: map[name]*strings.Builder{}}
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // a line of the build, not of a test
		}
		c.add(e)
	}
	return c
}

func (c *count) add(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "output":
		if c.said[n] == nil {
			c.said[n] = new(strings.Builder)
		}
		c.said[n].WriteString(e.Output)
	case "pass":
		if e.Test != "" {
			c.passed++
		}
		delete(c.said, n)
	case "fail":
		// A package fails because of its tests, which are counted, or by
		// itself: it did not build, or ended early.
		if e.Test != "" || !c.hasFailure(e.Package) {
			c.failed = append(c.failed, n)
		}
	case "skip":
		if e.Test != "" { // else a package without tests
			c.skipped = append(c.skipped, n)
		}
	}
}

func (c *count) hasFailure(pkg string) bool {
	for _, n := range c.failed {
		if n.pkg == pkg {
			return true
		}
	}
	return false
}

func (c *count) print(noskip, output bool) (ok bool) {
	if output {
		for _, n := range c.failed {
			fmt.Printf("--- FAIL: %s %s\n%s", n.pkg, n.test, c.text(n))
		}
	}
	for _, n := range c.skipped {
		fmt.Printf("SKIP %s %s\n%s", n.pkg, n.test, indent(c.text(n)))
	}
	failed := len(c.failed)
	if noskip && len(c.skipped) > 0 {
		fmt.Println("!! CI is set: nothing may be skipped; each skipped test counts as failed")
		failed += len(c.skipped)
	}
	if c.passed+failed == 0 {
		fmt.Println("!! no test was run")
		failed = 1
	}
	fmt.Printf("belay: %d passed, %d failed", c.passed, failed)
	if n := len(c.skipped); n > 0 && !noskip {
		fmt.Printf(", %d skipped", n)
	}
	fmt.Println()
	return failed == 0
}

func (c *count) text(n name) string {
	if b := c.said[n]; b != nil {
		return b.String()
	}
	return ""
}

// indent keeps the lines that say why, without go test's own.
func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "===") && !strings.HasPrefix(t, "---") {
			b.WriteString("     " + t + "\n")
		}
	}
	return b.String()
}
