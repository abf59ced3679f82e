package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	case sdkMarker:
		return sdkAgent(), true
	case slowMarker:
		return slow(os.Args[2:]), true
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
	acp     table
	sdks    table
	agents  []acpAgent // that are installed
	under   bool       // run no bare rows of agents
	record  string     // folder for what went over the wire; "" = nothing is kept
}

func run() int {
	h := &harness{stdio: stdioTable(), http: httpTable(), acp: acpTable(), sdks: acpSDKTable()}
	var only, md, belayPath, part, agents string
	var bare bool
	flag.StringVar(&only, "only", "", "run only the rows whose name contains this")
	flag.StringVar(&md, "md", "", "also write the table as Markdown to this file")
	flag.StringVar(&belayPath, "belay", "", "binary to test (default: built from this checkout)")
	flag.StringVar(&part, "part", "", "run only this part: stdio, http, acp or acpsdk")
	flag.StringVar(&agents, "agents", "", "the agents of the part acp, separated by commas: "+strings.Join(acpNames(), ", ")+" (default: all; with $CI set two of them)")
	flag.StringVar(&h.record, "record", "", "write what went over the wire in the sessions of agents into this folder")
	flag.IntVar(&h.jobs, "jobs", 4, "how many rows are run at once over HTTP; otherwise it is half of that")
	flag.BoolVar(&bare, "bare", false, "run the bare rows only, without Belay")
	flag.BoolVar(&h.under, "under", false, "of the agents run only the rows under Belay")
	flag.BoolVar(&h.verbose, "v", false, "show the peers' stderr and every step")
	flag.Parse()

	chosen, err := acpSelected(agents)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 2
	}
	if err := h.prepare(belayPath, bare); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(h.dir)
	wanted := func(name string) bool { return part == "" || part == name }
	if wanted("stdio") || wanted("http") {
		h.peers.install(h.cache)
	}
	if wanted("stdio") {
		h.clients(only)
		h.servers(only)
		h.stopAcks(only)
	}
	if wanted("http") {
		h.overHTTP(only)
	}
	if wanted("acp") {
		h.overACP(chosen, only)
	}
	if wanted("acpsdk") {
		h.acpSDKs(only)
	}
	tables := []*table{&h.stdio, &h.http, &h.acp, &h.sdks}
	for _, t := range tables {
		fmt.Print(t.text())
	}
	if md != "" {
		if err := os.WriteFile(md, []byte(document(slices.Concat(h.peers.versions(), h.acpPins(), h.sdkPins()), tables...)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			return 1
		}
	}
	h.peers.reportMissing()
	return verdict(tables...)
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
