package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/belayhq/belay/internal/faketool"
)

func main() {
	faketool.MaybeRun()
	if code, is := peer(); is {
		os.Exit(code)
	}
	os.Exit(run())
}

// peer runs this binary as one of the Go peers, if its first argument says so.
func peer() (code int, is bool) {
	if len(os.Args) < 2 {
		return 0, false
	}
	switch os.Args[1] {
	case goClientMarker:
		return goClient(os.Args[2:]), true
	case goServerMarker:
		return goServer(os.Args[2:]), true
	case goAckMarker:
		return goAckServer(), true
	}
	return 0, false
}

// harness is one run of the program.
type harness struct {
	belay   string // the binary under test; "" with -bare
	cache   string // installed peers
	dir     string // scratch of this run
	verbose bool
	jobs    int
	peers   peers
	stdio   table
	http    table
}

func run() int {
	h := &harness{stdio: stdioTable(), http: httpTable()}
	var only, md, belayPath, part string
	var bare bool
	flag.StringVar(&only, "only", "", "run only the rows whose name contains this")
	flag.StringVar(&md, "md", "", "also write the table as Markdown to this file")
	flag.StringVar(&belayPath, "belay", "", "binary to test (default: built from this checkout)")
	flag.StringVar(&part, "part", "", "run only this part: stdio or http")
	flag.IntVar(&h.jobs, "jobs", 4, "how many rows are run at once over HTTP; over stdio it is half of that")
	flag.BoolVar(&bare, "bare", false, "run the bare rows only, without Belay")
	flag.BoolVar(&h.verbose, "v", false, "show the peers' stderr and every step")
	flag.Parse()

	if err := h.prepare(belayPath, bare); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(h.dir)
	h.peers.install(h.cache)
	if part != "http" {
		h.clients(only)
		h.servers(only)
		h.stopAcks(only)
	}
	if part != "stdio" {
		h.overHTTP(only)
	}
	fmt.Print(h.stdio.text(), h.http.text())
	if md != "" {
		if err := os.WriteFile(md, []byte(document(h.peers.versions(), &h.stdio, &h.http)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			return 1
		}
	}
	h.peers.reportMissing()
	return verdict(&h.stdio, &h.http)
}

// prepare makes the scratch directory and builds Belay.
func (h *harness) prepare(belayPath string, bare bool) error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	h.cache = filepath.Join(root, ".cache", "interop")
	if h.dir, err = os.MkdirTemp("", "belay-interop-"); err != nil {
		return err
	}
	switch {
	case bare:
		return nil
	case belayPath != "":
		h.belay, err = filepath.Abs(belayPath)
		return err
	}
	h.belay = filepath.Join(h.dir, "belay")
	cmd := exec.Command("go", "build", "-trimpath", "-o", h.belay, "./cmd/belay")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build belay: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (h *harness) logf(format string, args ...any) {
	if h.verbose {
		fmt.Fprintf(os.Stderr, "  "+format+"\n", args...)
	}
}
