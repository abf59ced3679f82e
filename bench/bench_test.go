package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

func TestMain(m *testing.M) {
	faketool.MaybeRun()
	maybeRole()
	os.Exit(m.Run())
}

// The program must measure what it can without Belay, and say what it cannot.
func TestBareMeasurements(t *testing.T) {
	b := &bench{rounds: 1, quick: true, dir: t.TempDir()}
	if err := b.all("latency,throughput,cancel,startup"); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.report.rows {
		if r.err != nil {
			t.Errorf("%s: %v", r.name, r.err)
		}
		if !strings.HasPrefix(r.name, "processor") && (r.value("direct") <= 0 || r.value("relay") <= 0) {
			t.Errorf("%s: direct %v, relay %v", r.name, r.value("direct"), r.value("relay"))
		}
		if r.verdict != "" {
			t.Errorf("%s: judged %q without Belay", r.name, r.verdict)
		}
	}
	if err := b.all("forced"); err != nil {
		t.Fatal(err)
	}
	if last := b.report.rows[len(b.report.rows)-1]; last.err == nil {
		t.Error("a forced stop was measured without Belay")
	}
	if err := b.all("nonsense"); err == nil {
		t.Error("an unknown measurement was accepted")
	}
	if text := b.report.text(); !strings.Contains(text, "stdio latency, 100 B result") {
		t.Error(text)
	}
}

// An agent of this program's own is measured as it is, and through the relay.
func TestBareACP(t *testing.T) {
	b := &bench{rounds: 1, quick: true, dir: t.TempDir()}
	for _, measure := range []func() error{b.acpUpdates, b.acpThroughput, b.acpStops} {
		if err := measure(); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range b.report.rows {
		if !strings.HasPrefix(r.name, "processor") && (r.value("direct") <= 0 || r.value("relay") <= 0) {
			t.Errorf("%s: direct %v, relay %v", r.name, r.value("direct"), r.value("relay"))
		}
	}
}

// A cancel reaches every server, and every call is called back.
func TestRAP(t *testing.T) {
	b := &bench{rounds: 1, quick: true, dir: t.TempDir()}
	if err := errors.Join(b.rapFanOut(30), b.rapCalls()); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.report.rows {
		if r.value("belay") <= 0 {
			t.Errorf("%s: %v", r.name, r.value("belay"))
		}
	}
}

func TestReceipts(t *testing.T) {
	const out = `{"runs":[{"receipt":{"verdict":"confirmed","steps":[
		{"at":"2026-01-01T00:00:00Z","step":"told"},
		{"at":"2026-01-01T00:00:01Z","step":"kill"},
		{"at":"2026-01-01T00:00:01.012Z","step":"evidence","evidence":{"kind":"process_gone"}}]}}]}
		{"verdict":"signalled","steps":[]}`
	list, err := receipts(strings.NewReader(out))
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if kill, gone := list[0].killAndGone(); gone.Sub(kill) != 12*time.Millisecond {
		t.Error("kill to gone", kill, gone)
	}
	if _, gone := list[1].killAndGone(); !gone.IsZero() {
		t.Error("no kill step, but", gone)
	}
}

func TestParseBench(t *testing.T) {
	values, order := parseBench("goos: linux\nBenchmarkRegister-2   \t 100 \t 812.5 ns/op\t 3 allocs/op\nBenchmarkRegister-2 100 800 ns/op 3 allocs/op\nPASS\n")
	if len(order) != 2 || len(values["Register\tns/op"]) != 2 || values["Register\tallocs/op"][0] != 3 {
		t.Error(values, order)
	}
}
