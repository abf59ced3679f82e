package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/pinned"
)

// The pins must be whole, and the lock file must work with any registry: it
// holds versions and digests, no addresses.
func TestPins(t *testing.T) {
	raw, err := peerFiles.ReadFile("peers/node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pinned.Locked(raw); err != nil {
		t.Error(err)
	}
	for _, v := range []string{"v1", "v2"} {
		pin, err := peerFiles.ReadFile("peers/python/" + v + ".txt")
		if err != nil || !strings.Contains(string(pin), "==") {
			t.Errorf("python %s is not pinned: %q %v", v, pin, err)
		}
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "witness")
	argv := faketool.Command("tick", "-witness="+path, "-key=k", "-ms=20", "-n=15")
	c, err := faketool.StartClient(argv, faketool.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := faketool.NewWitness(path)
	if _, err := w.WaitCount("k", "tick", 2, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	waited := make(chan int)
	go func() { waited <- c.Wait() }() // reaps it: a zombie would not count either
	r := &row{peer: "p", event: "e", belay: true, next: "ok"}
	r.observe(w, "k", time.Now())
	if r.wentOn < 100*time.Millisecond || r.stillAt || len(r.alive) > 0 {
		t.Errorf("it ticked for about 260 ms more and ended: %+v", r)
	}
	if code := <-waited; code != 0 {
		t.Error("exit code", code)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		row  row
		fail bool
	}{
		{row{belay: false, stillAt: true, next: "broken"}, false}, // a fact about others
		{row{belay: true, next: "ok", wentOn: grace}, false},
		{row{belay: true, next: "ok", stillAt: true}, true},
		{row{belay: true, next: "ok", wentOn: 3 * time.Second}, true},
		{row{belay: true, next: "ok", wentOn: 3 * time.Second, allowed: 4 * time.Second}, false},
		{row{belay: true, next: "ok", wentOn: 5 * time.Second, allowed: 4 * time.Second}, true},
		{row{belay: true, next: "ok", alive: []int{7}}, true},
		{row{belay: true, next: "error"}, true},
		{row{belay: true, noCancel: true, stillAt: true, next: "ok"}, false}, // nobody was told
	} {
		r := c.row
		r.judge()
		if (r.problem != "") != c.fail {
			t.Errorf("%+v: problem %q", c.row, r.problem)
		}
	}
}

func TestMain(m *testing.M) {
	faketool.MaybeRun()
	if code, is := peer(); is {
		os.Exit(code)
	}
	if len(os.Args) > 2 && os.Args[1] == testAgentMarker {
		os.Exit((&testAgent{careless: os.Args[2] == "careless"}).serve())
	}
	os.Exit(m.Run())
}
