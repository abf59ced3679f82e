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
	maybeRole()
	os.Exit(run())
}

// bench is one run of the program: what all measurements share.
type bench struct {
	rounds int
	quick  bool
	belay  string // path of the binary under test; "" = it could not be built
	dir    string // scratch: witness files, runtime directory
	report report

	gateways   string // where other people's gateways are installed; "" = nowhere
	noGateways error  // why not
}

// measurement is one entry of the table of measurements.
type measurement struct {
	name  string
	about string
	run   func(*bench) error
}

var measurements = []measurement{
	{"latency", "one call at a time: 100 B, 20 KB and 2 MB results", (*bench).latency},
	{"throughput", "64 calls in flight", (*bench).throughput},
	{"cancel", "cancel written by the client -> read by the server", (*bench).cancel},
	{"forced", "kill step -> everything dead; the next call after it", (*bench).forced},
	{"startup", "from exec to the answer of initialize", (*bench).startup},
	{"idle", "memory and wake-ups of a wrapped idle server", (*bench).idle},
	{"memory", "resident memory with 2,000 calls in flight", (*bench).memory},
	{"http", "HTTP callers: latency, throughput, cancel and memory, in both eras", (*bench).http},
	{"remote", "a stdio caller in front of a server over HTTP", (*bench).remote},
	{"acp", "belay acp: updates, Stop, start-up and idle memory", (*bench).acp},
	{"rap", "package rap: telling many tool servers of a cancel, and calls", (*bench).rap},
	{"admin", "belay serve with ledger, metrics and people; stopping and listing over REST", (*bench).admin},
	{"scripts", "scripted tools: calls, Stops that hand back or break what runs, memory of many", (*bench).scripts},
	{"inprocess", "go test -bench in package belay: runs and cancels", (*bench).inProcess},
}

func run() int {
	b := &bench{}
	var only, belayPath, md string
	var asJSON bool
	flag.IntVar(&b.rounds, "rounds", 5, "rounds; the median over them counts")
	flag.BoolVar(&b.quick, "quick", false, "two rounds with fewer calls: a look, not a measurement")
	flag.StringVar(&only, "only", "", "measure only these (comma list): "+names())
	flag.StringVar(&belayPath, "belay", "", "binary to measure (default: built from this checkout)")
	flag.BoolVar(&asJSON, "json", false, "print JSON instead of the table")
	flag.StringVar(&md, "md", "", "also write the table as Markdown to this file")
	flag.Parse()
	if b.quick {
		b.rounds = min(b.rounds, 2)
	}
	dir, err := os.MkdirTemp("", "belay-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	if b.belay, err = binary(belayPath, dir); err == nil {
		err = b.probe()
	}
	if err != nil {
		b.belay = ""
		fmt.Fprintf(os.Stderr, "bench: %v; measuring the direct connection and the relay only\n", err)
	}
	if err := b.all(only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	if md != "" {
		if err := os.WriteFile(md, []byte(b.report.markdown()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}
	if asJSON {
		return b.report.printJSON(os.Stdout)
	}
	fmt.Print(b.report.text())
	return 0
}

// all runs the chosen measurements. One that fails is reported as a row and
// does not keep the others from running.
func (b *bench) all(only string) error {
	chosen := strings.FieldsFunc(only, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range chosen {
		if !slices.ContainsFunc(measurements, func(m measurement) bool { return m.name == name }) {
			return fmt.Errorf("-only: unknown measurement %q; want one of %s", name, names())
		}
	}
	b.report.head(b)
	for _, m := range measurements {
		if len(chosen) > 0 && !slices.Contains(chosen, m.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s (%s)\n", m.name, m.about)
		if err := m.run(b); err != nil {
			b.report.failed(m.name, err)
		}
	}
	return nil
}

func names() string {
	var list []string
	for _, m := range measurements {
		list = append(list, m.name)
	}
	return strings.Join(list, ", ")
}

// binary returns the path of belay, built into dir unless it is given.
func binary(path, dir string) (string, error) {
	if path != "" {
		return exec.LookPath(path)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "belay")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/belay")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build belay: %w\n%s", err, bytes.TrimSpace(out))
	}
	return path, nil
}

// probe tries one call through Belay, so that a binary that cannot work is said
// once and not in each row.
func (b *bench) probe() error {
	p, err := openPeer(b.belayWay().wrap(b.server("")), b.env())
	if err != nil {
		return fmt.Errorf("belay wrap: %w", err)
	}
	defer p.close()
	if _, err := p.call("echo", `{}`); err != nil {
		return fmt.Errorf("a call through belay wrap: %w", err)
	}
	return nil
}

// moduleRoot is where go.mod lies, from wherever the program was started.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
