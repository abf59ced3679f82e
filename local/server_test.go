package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// talk sends raw bytes to a server and returns the lines of its answer.
func talk(t *testing.T, path, raw string) []string {
	t.Helper()
	c, err := net.Dial("unix", path)
	must(t, err)
	defer c.Close()
	w := newWire(c.(*net.UnixConn))
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := readLine(w.in, maxAnswer); err != nil {
		t.Fatalf("no greeting: %v", err)
	}
	_, _ = c.Write([]byte(raw))
	var lines []string
	for {
		line, err := readLine(w.in, maxAnswer)
		if err != nil {
			return lines
		}
		lines = append(lines, strings.TrimSpace(string(line)))
	}
}

func TestServerBadRequests(t *testing.T) {
	s, _ := serve(t, Options{})
	for raw, want := range map[string]string{
		"rubbish\n":              "bad_request",
		`{"op":"frob"}` + "\n":   "does not know the operation",
		`{"op":"cancel"}` + "\n": "without its parameters",
		`{"op":"cancel","cancel":{"cancellation":{"cause":"whim","stop":""}}}` + "\n": "whim",
		`{"op":"get","run":"run_nonsense"}` + "\n":                                    "bad_request",
		`{"op":"get","run":"` + belay.NewRunID().String() + `"}` + "\n":               "not_found",
		`{"op":"attach","ticket":"let me in"}` + "\n":                                 "not a ticket",
		strings.Repeat("x", maxRequest+10) + "\n":                                     "too long",
	} {
		lines := talk(t, s.Path(), raw)
		if len(lines) != 2 || !strings.Contains(lines[0], want) || lines[1] != `{"done":true}` {
			t.Errorf("%.60q: %q, want an error with %q and done", raw, lines, want)
		}
	}
	if lines := talk(t, s.Path(), `{"op":"hello"}`+"\n"); len(lines) != 1 {
		t.Errorf("afterwards: %q", lines)
	}
}

// Silent connections do not keep others out beyond the bound, and do not keep
// Close from returning.
func TestConnectionsAreBounded(t *testing.T) {
	dir := privateDir(t)
	s, _ := serve(t, Options{Dir: dir})
	var idle []net.Conn
	for range maxRequests {
		c, err := net.Dial("unix", s.Path())
		must(t, err)
		idle = append(idle, c)
	}
	until(t, "the server to be full", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.requests == maxRequests
	})
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	if _, err := m.List(t.Context(), belay.Filter{}); !errors.Is(err, belay.ErrTooMany) {
		t.Errorf("over the bound: %v, want ErrTooMany", err)
	}
	_ = idle[0].Close()
	until(t, "a place to be free", func() bool {
		_, err := m.List(t.Context(), belay.Filter{})
		return err == nil
	})
	w, start := calm.Start(t), time.Now()
	must(t, s.Close(), s.Close())
	w.Within(t, time.Since(start), drainTime/2, "Close")
	for _, c := range idle {
		_ = c.Close()
	}
	if _, err := os.Lstat(s.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A process that ends because it was stopped still delivers the receipt.
func TestCloseLetsAnswersFinish(t *testing.T) {
	dir := privateDir(t)
	s, tree := serve(t, Options{Dir: dir})
	r := startRun(tree, "deaf", belay.RunID{}, "")
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	told := make(chan struct{}, 8)
	type end struct {
		results []belay.CancelResult
		err     error
	}
	done := make(chan end)
	go func() {
		results, err := m.Stop(context.Background(), byUser(r.ID()), func(belay.CancelResult) { told <- struct{}{} })
		done <- end{results, err}
	}()
	<-told
	closed := make(chan struct{})
	go func() { _ = s.Close(); close(closed) }()
	r.Observe(belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree})
	got := <-done
	if got.err != nil || len(got.results) != 1 || !got.results[0].Receipt.OK() {
		t.Errorf("%+v, %v; want confirmed", got.results, got.err)
	}
	<-closed
}

// A peer inside a run's process tree lists everything, and stops only that run
// and what lies below it (DESIGN 11, 10).
func TestLocalAuthority(t *testing.T) {
	dir := privateDir(t)
	top, _ := spawn(t, dir, "top")
	var mu sync.Mutex
	var inside []string
	parent, err := Attach(t.Context(), top.Ticket, func(belay.CancelRequest) {})
	must(t, err)
	defer parent.Close()
	_, tree := serve(t, Options{Dir: dir, Parent: parent, InTree: func(pid int) []string {
		mu.Lock()
		defer mu.Unlock()
		if pid != os.Getpid() {
			t.Errorf("asked about pid %d", pid)
		}
		return inside
	}})
	mine := startRun(tree, "deaf", parent.Run(), "")
	below, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "below", Parent: mine})
	must(t, err)
	beside := startRun(tree, "deaf", belay.RunID{}, "")
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	cancel := func(from belay.RunID, req belay.CancelRequest) ([]belay.CancelResult, error) {
		mu.Lock()
		inside = nil
		if !from.IsZero() {
			inside = []string{from.String()}
		}
		mu.Unlock()
		req.Wait = 0
		return m.Cancel(t.Context(), req)
	}
	if list, err := m.List(t.Context(), belay.Filter{}); err != nil || len(list) != 4 {
		t.Errorf("List from inside: %v, %v", list, err)
	}
	refused := []struct {
		what string
		from belay.RunID
		req  belay.CancelRequest
	}{
		{"a run beside", mine.ID(), byUser(beside.ID())},
		{"one of its own and one beside", mine.ID(), byUser(mine.ID(), beside.ID())},
		{"the run above", below.ID(), byUser(mine.ID())},
		{"everything", mine.ID(), byUser()},
	}
	for _, c := range refused {
		results, err := cancel(c.from, c.req)
		if c.what == "everything" { // what lies in the other process is that one's matter
			if !errors.Is(err, belay.ErrForbidden) {
				t.Errorf("%s: %v, want ErrForbidden", c.what, err)
			}
			continue
		}
		if !errors.Is(err, belay.ErrForbidden) || !strings.Contains(err.Error(), "may stop only that run") || len(results) != 0 {
			t.Errorf("%s: %v, %v; want ErrForbidden", c.what, results, err)
		}
	}
	if mine.Cancellation() != nil || beside.Cancellation() != nil || below.Cancellation() != nil {
		t.Fatal("a refused Stop stopped something")
	}
	dry := byUser(beside.ID())
	dry.DryRun = true
	if results, err := cancel(mine.ID(), dry); err != nil || len(results) != 1 {
		t.Errorf("a dry run: %v, %v", results, err)
	}
	// A run in whose tree our whole process lies, two processes up.
	results, err := cancel(top.Runs[0], byUser(below.ID()))
	if err != nil || len(results) != 1 || below.Cancellation() == nil {
		t.Fatalf("below its own: %v, %v", results, err)
	}
	if by := below.Cancellation().By; !strings.Contains(by, "inside "+top.Runs[0].String()) {
		t.Errorf("By = %q, want it to say where it came from", by)
	}
	if results, err := cancel(mine.ID(), byUser(mine.ID())); err != nil || len(results) != 2 {
		t.Errorf("itself: %v, %v", results, err)
	}
	if results, err := cancel(belay.RunID{}, byUser(beside.ID())); err != nil || len(results) != 1 {
		t.Errorf("from outside: %v, %v", results, err)
	}
}

// A peer that is gone cannot be placed, so it may stop nothing.
func TestGonePeerMayNotCancel(t *testing.T) {
	s, tree := serve(t, Options{})
	r := startRun(tree, "deaf", belay.RunID{}, "")
	_, err := s.authorize(t.Context(), peer{pid: deadPid(t), known: true, gone: true}, byUser(r.ID()))
	if !errors.Is(err, belay.ErrForbidden) {
		t.Errorf("authorize = %v, want ErrForbidden", err)
	}
}

func TestTickets(t *testing.T) {
	dir := privateDir(t)
	s, tree := serve(t, Options{Dir: dir})
	other, _ := serve(t, Options{Dir: dir})
	run := startRun(tree, "deaf", belay.RunID{}, "")
	over := startRun(tree, "deaf", belay.RunID{}, "")
	over.Finish(belay.Completed)
	good := s.Ticket(run.ID())
	gone := strings.ReplaceAll(good, filepath.Base(s.Path()), fmt.Sprintf("%d.sock", deadPid(t)))
	for text, want := range map[string]error{
		"":                         belay.ErrBadRequest,
		"let me in":                belay.ErrBadRequest,
		strings.Repeat("x", 1e5):   belay.ErrBadRequest,
		"belay1:run_x:y:/z/1.sock": belay.ErrBadRequest,
		other.Ticket(run.ID()):     belay.ErrNotFound, // a good ticket for a run that is not there
		s.Ticket(over.ID()):        belay.ErrEnded,
		s.Ticket(belay.NewRunID()): belay.ErrNotFound,
		gone:                       belay.ErrUnreachable,
		strings.Replace(good, run.ID().String(), over.ID().String(), 1): belay.ErrForbidden, // its secret is for another run
		strings.Replace(good, s.Path(), other.Path(), 1):                belay.ErrForbidden,
		strings.Replace(good, s.Path(), "/nonexistent/dir/1.sock", 1):   belay.ErrUnreachable,
	} {
		p, err := Attach(t.Context(), text, func(belay.CancelRequest) {})
		if !errors.Is(err, want) {
			t.Errorf("Attach(%.60q) = %v, want %v", text, err, want)
		}
		if err == nil {
			_ = p.Close()
		}
		var warnings []string
		p = FromEnv(t.Context(), func(string) string { return text }, nil, func(s string) { warnings = append(warnings, s) })
		if text != "" && (p != nil || len(warnings) != 1 || strings.Contains(warnings[0], "\n")) {
			t.Errorf("FromEnv(%.60q): %v, warnings %q; want one line", text, p, warnings)
		}
	}
	var none *Parent
	if !none.Run().IsZero() || none.Above() != nil || none.Stopped() != nil || none.Done() != nil || none.Close() != nil {
		t.Error("a nil Parent is not empty")
	}
}

// A Stop and the second press reach an attached child, in order and once each;
// one that attaches to a stopped run is told at once.
func TestAttachForwards(t *testing.T) {
	dir := privateDir(t)
	s, tree := serve(t, Options{Dir: dir})
	run := startRun(tree, "deaf", belay.RunID{}, "")
	got := make(chan belay.CancelRequest, 8)
	p, err := Attach(t.Context(), s.Ticket(run.ID()), func(req belay.CancelRequest) { got <- req })
	must(t, err)
	if p.Run() != run.ID() || p.Stopped() != nil {
		t.Errorf("attached below %s", p.Run())
	}
	first := byUser(run.ID())
	first.Wait, first.Cancellation.Stop = 0, belay.NewStopID()
	_, err = tree.Cancel(t.Context(), first)
	must(t, err)
	req := <-got
	if c := req.Cancellation; c.Stop != first.Cancellation.Stop || c.Cause != belay.CauseParent || c.Origin != run.ID() || len(req.Filter.IDs) != 0 {
		t.Errorf("forwarded: %+v", req)
	}
	second := first
	second.Cancellation.Stop = belay.NewStopID()
	_, err = tree.Cancel(t.Context(), second)
	must(t, err)
	if req := <-got; !req.Escalate || req.Cancellation.Stop != second.Cancellation.Stop {
		t.Errorf("second press: %+v", req)
	}
	if p.Stopped() == nil || p.Stopped().Stop != first.Cancellation.Stop {
		t.Errorf("Stopped = %+v", p.Stopped())
	}
	must(t, p.Close(), p.Close())
	run2 := startRun(tree, "deaf", belay.RunID{}, "")
	run2.Cancel(belay.Cancellation{Cause: belay.CauseShutdown})
	p, err = Attach(t.Context(), s.Ticket(run2.ID()), func(req belay.CancelRequest) { got <- req })
	must(t, err)
	if req := <-got; req.Cancellation.Origin != run2.ID() {
		t.Errorf("late: %+v", req)
	}
	must(t, s.Close())
	<-p.Done() // the parent's end is seen
	must(t, p.Close())
}

// An error keeps its class and its words across the wire.
func TestErrorsCrossTheWire(t *testing.T) {
	err := fmt.Errorf("stop %s: %w", "x", belay.ErrRestrained)
	b, _ := json.Marshal(answer{Error: faultOf(err)})
	var a answer
	must(t, json.Unmarshal(b, &a))
	if got := a.Error.err(); !errors.Is(got, belay.ErrRestrained) || got.Error() != err.Error() {
		t.Errorf("%q, want %q", got, err)
	}
}
