package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// slow names folders whose tests take long, the slowest first: they are begun
// first, so that the end does not wait for one of them alone.
var slow = []string{
	"gateway", "serve", "internal/cli", "proc", "acceptance", "script", "interop", "ledger", "local", "node", "supervise",
	"aggregate", "mcp/httpclient", "acp/front", "acp/bridge", "rap/spawn", "lease", "conformance", "admin", "rap", "script/worker",
}

// runner runs test binaries.
type runner struct {
	*settings
	convert string // turns output into events

	mu sync.Mutex // guards what is printed
}

// event is what is used of an event of go test -json.
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"`
	Test    string `json:"Test"`
	Output  string `json:"Output"`
}

// result is what the run of one package, or of one fuzz target, came to.
type result struct {
	pkg    *pkg
	events []byte // a line of JSON each
	failed []string
	broke  bool // it ended before all its tests had
	ok     bool
	took   time.Duration
}

// all runs every package, and the fuzz targets beside them, and returns one
// result for each package and for each target that failed.
func (r *runner) all(ctx context.Context, packages []*pkg) []*result {
	rank := func(p *pkg) int {
		for i, name := range slow {
			if strings.HasSuffix(filepath.ToSlash(p.dir), "/"+name) {
				return i
			}
		}
		return len(slow)
	}
	slices.SortStableFunc(packages, func(a, b *pkg) int { return cmp.Compare(rank(a), rank(b)) })
	var mu sync.Mutex
	var results []*result
	tests, fuzz := make(chan *pkg, len(packages)), make(chan target, 1000)
	go func() { // ends when fuzz is drained, which happens below
		defer close(fuzz)
		if r.fuzz == 0 {
			return
		}
		for _, p := range packages {
			for _, name := range p.targets {
				fuzz <- target{p, name}
			}
		}
	}()
	for _, p := range packages {
		tests <- p
	}
	close(tests)
	add := func(one *result) {
		mu.Lock()
		defer mu.Unlock()
		results = append(results, one)
	}
	fuzzer := func() {
		for t := range fuzz {
			if one := r.fuzzOne(ctx, t); one != nil {
				add(one)
			}
		}
	}
	var lanes, rest sync.WaitGroup
	rest.Go(fuzzer) // one, and at the lowest priority: it never waits
	for range r.lanes {
		lanes.Go(func() {
			for p := range tests {
				one := r.one(ctx, p)
				r.say(one)
				add(one)
			}
		})
	}
	lanes.Wait()
	for range runtime.NumCPU() - 1 {
		rest.Go(fuzzer)
	}
	rest.Wait()
	return results
}

// one runs the tests of a package, or some of them.
func (r *runner) one(ctx context.Context, p *pkg, some ...string) *result {
	one := &result{pkg: p}
	if p.binary == "" {
		one.fail("", "it did not build\n")
		return one
	}
	began := time.Now()
	out, err := r.events(ctx, p, some)
	one.took = time.Since(began)
	one.read(out, err)
	return one
}

// events runs a test binary as go test does and returns the events of it.
func (r *runner) events(ctx context.Context, p *pkg, some []string) ([]byte, error) {
	convert := exec.Command(r.convert, "-t", "-p", p.path)
	var out bytes.Buffer
	convert.Stdout, convert.Stderr = &out, &out
	in, err := convert.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := convert.Start(); err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeoutCause(ctx, r.timeout+time.Minute, errors.New("it did not end by itself when its time was over"))
	defer end()
	began := time.Now()
	test := exec.CommandContext(ctx, p.binary, "-test.v=test2json", "-test.paniconexit0", "-test.timeout="+r.timeout.String())
	if len(some) > 0 {
		test.Args = append(test.Args, "-test.run=^("+strings.Join(some, "|")+")$")
	}
	test.Dir, test.Stdout, test.Stderr = p.dir, in, in
	if os.Getenv("GORACE") == "" {
		test.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // else every program that a test starts sleeps a second at its end
	}
	test.WaitDelay = 20 * time.Second // for orphans that hold the output open
	word := "ok  "
	if err = test.Run(); err != nil {
		word = fmt.Sprintf("%v\nFAIL", errors.Join(err, context.Cause(ctx)))
	}
	fmt.Fprintf(in, "%s\t%s\t%.3fs\n", word, p.path, time.Since(began).Seconds())
	err = errors.Join(err, in.Close(), convert.Wait())
	return out.Bytes(), err
}

// read takes the events of a run that ended with err. The word about the package
// itself is ours: the converter has not seen how the program ended. Nor does it
// name the tests that were under way then.
func (one *result) read(out []byte, err error) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	var order []string
	open := map[string]bool{}
	last := "fail"
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // not of a test
		}
		end := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
		switch {
		case end && e.Test == "":
			last = e.Action
			continue
		case e.Action == "run":
			open[e.Test] = true
			order = append(order, e.Test)
		case end:
			open[e.Test] = false
			if e.Action == "fail" {
				one.failed = append(one.failed, e.Test)
			}
		}
		one.events = append(append(one.events, lines.Bytes()...), '\n')
	}
	for _, test := range order {
		if open[test] {
			one.broke = true
			one.fail(test, "it was under way when the program ended\n")
		}
	}
	switch {
	case len(one.failed) > 0:
		one.add(event{"fail", one.pkg.path, "", ""})
	case err != nil || last == "fail":
		one.fail("", fmt.Sprintf("how the program ended: %v\n", err))
	default:
		one.add(event{last, one.pkg.path, "", ""})
		one.ok = true
	}
}

// fail adds a failure that the run itself has not told; test may be empty.
func (one *result) fail(test, why string) {
	one.failed = append(one.failed, test)
	one.add(event{"output", one.pkg.path, test, why})
	one.add(event{"fail", one.pkg.path, test, ""})
}

func (one *result) add(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // it is strings only
	}
	one.events = append(append(one.events, line...), '\n')
}

// say prints how a package ended.
func (r *runner) say(one *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.ok {
		fmt.Printf("✓  %s (%.1fs)\n", one.pkg.path, one.took.Seconds())
		return
	}
	fmt.Printf("✖  %s (%.1fs): %s\n", one.pkg.path, one.took.Seconds(), strings.Join(one.names(), ", "))
}

// names is which tests failed, without the package itself.
func (one *result) names() []string {
	names := slices.DeleteFunc(slices.Clone(one.failed), func(s string) bool { return s == "" })
	if len(names) == 0 {
		return []string{"the package itself"}
	}
	return names
}

// secondLook runs what failed once more, one package after the other, if they
// are few, and puts the second result in the place of the first: of the tests that
// failed, or of the whole package if it did not come to its end.
func (r *runner) secondLook(ctx context.Context, results []*result) {
	var failed []*result
	for _, one := range results {
		if !one.ok {
			failed = append(failed, one)
		}
	}
	if len(failed) == 0 || len(failed) > r.again || ctx.Err() != nil {
		return
	}
	for _, one := range failed {
		if one.pkg.binary == "" || one.isFuzz() {
			continue // a second look would see the same
		}
		fmt.Printf("!! once more, alone: %s; what failed the first time: %s\n", one.pkg.path, strings.Join(one.names(), ", "))
		fmt.Print(one.output())
		again := one.tops()
		second := r.one(ctx, one.pkg, again...)
		if len(again) > 0 {
			second.events = append(one.without(again), second.events...)
		}
		*one = *second
		r.say(one)
	}
}

// tops names the tests that failed, without the subtests; none if all have to be
// run again.
func (one *result) tops() (names []string) {
	if one.broke {
		return nil
	}
	for _, test := range one.failed {
		top, _, _ := strings.Cut(test, "/")
		switch {
		case top == "":
			return nil
		case !slices.Contains(names, top):
			names = append(names, top)
		}
	}
	return names
}

// without is the events of the other tests, and no word about the package itself.
func (one *result) without(tops []string) (events []byte) {
	for line := range bytes.Lines(one.events) {
		var e event
		if json.Unmarshal(line, &e) != nil || e.Test == "" && e.Action != "output" {
			continue
		}
		if top, _, _ := strings.Cut(e.Test, "/"); !slices.Contains(tops, top) {
			events = append(events, line...)
		}
	}
	return events
}

// output is what the failed tests of a result printed.
func (one *result) output() string {
	var b strings.Builder
	for line := range bytes.Lines(one.events) {
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action == "output" && slices.Contains(one.failed, e.Test) {
			b.WriteString("     " + strings.TrimRight(e.Output, "\n") + "\n")
		}
	}
	return b.String()
}

// write writes the events of all results and counts those that failed.
func write(file string, results []*result) (failed int, err error) {
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	for _, one := range results {
		if !one.ok {
			failed++
		}
		if _, err := out.Write(one.events); err != nil {
			return failed, fmt.Errorf("%w (and %w)", err, out.Close())
		}
	}
	return failed, out.Close()
}
