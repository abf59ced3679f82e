// Command testrun builds the test binary of every package once, under the race
// detector, and runs them: several packages at once, the slow ones first, and
// every fuzz target for a moment beside them. `make test` is made of it.
//
//	testrun [-json FILE] [-keep DIR] [-lanes N] [-fuzz TIME] [-again N] [PACKAGE...]
//
// FILE gets the events of `go test -json`, for scripts/testcount. go test itself
// would link every binary again for each of these purposes, runs packages in the
// order of their names, and has no second look: packages that failed, if they
// are few, are run once more, each on its own and loudly. Many tests measure
// times, and a machine that stands still is no defect. What fails twice is one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// keepEnv is the folder for test binaries when go test runs this program in
// place of each of them.
const keepEnv = "BELAY_TESTRUN_KEEP"

// settings is what the command line says.
type settings struct {
	json     string        // file for the events
	keep     string        // folder for the binaries
	dir      string        // the module
	lanes    int           // packages at once
	again    int           // how many failed packages get a second look
	fuzz     time.Duration // for each target; zero: none
	timeout  time.Duration // of one package
	packages []string
}

func main() {
	if to := os.Getenv(keepEnv); to != "" {
		exit(keep(to, os.Args[1]))
	}
	var s settings
	flag.StringVar(&s.json, "json", "test.json", "`file` for the events")
	flag.StringVar(&s.keep, "keep", filepath.Join(os.TempDir(), "belay-tests"), "`folder` for the test binaries")
	flag.IntVar(&s.lanes, "lanes", runtime.NumCPU(), "packages at once")
	flag.IntVar(&s.again, "again", 8, "how many failed packages get a second look; more are no accident")
	flag.DurationVar(&s.fuzz, "fuzz", 0, "how long to run each fuzz target")
	flag.DurationVar(&s.timeout, "timeout", 8*time.Minute, "of one package")
	flag.Parse()
	if s.packages = flag.Args(); len(s.packages) == 0 {
		s.packages = []string{"./..."}
	}
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &s)
	end()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run does it all. It fails if anything did.
func run(ctx context.Context, s *settings) error {
	began := time.Now()
	packages, err := build(ctx, s)
	if err != nil {
		return err
	}
	fmt.Printf("built in %v; now %d packages, %d at once\n", since(began), len(packages), s.lanes)
	r := &runner{settings: s}
	if r.convert, err = converter(ctx); err != nil {
		return err
	}
	began = time.Now()
	results := r.all(ctx, packages)
	r.secondLook(ctx, results)
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	failed, err := write(s.json, results)
	if err != nil {
		return err
	}
	fmt.Printf("run in %v\n", since(began))
	if failed > 0 {
		return fmt.Errorf("%d packages or fuzz targets failed", failed)
	}
	return nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second / 10) }
