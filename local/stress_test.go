package local

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// Everything at once, while runs come and go and in the end the server closes
// under it: nothing hangs, races or is left behind (goleak), and every run that
// was stopped has a receipt.
func TestStress(t *testing.T) {
	dir := privateDir(t)
	s, tree := serve(t, Options{Dir: dir, InTree: func(int) []string { return nil }})
	m := NewMesh(MeshOptions{Dirs: []string{dir}, Timeout: 10 * time.Second})
	ctx, end := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer end()
	var closed atomic.Bool
	var wg sync.WaitGroup
	var mu sync.Mutex
	var runs []*belay.Run
	some := func() *belay.Run {
		mu.Lock()
		defer mu.Unlock()
		if len(runs) == 0 || rand.IntN(4) == 0 {
			r, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "x", Stopper: quick{}})
			must(t, err)
			runs = append(runs, r)
		}
		return runs[rand.IntN(len(runs))]
	}
	acts := []func(){
		func() { _, _ = m.List(ctx, belay.Filter{Ended: true}) },
		func() { _, _ = m.Get(ctx, some().ID()) },
		func() {
			results, err := m.Cancel(ctx, byUser(some().ID()))
			if err == nil && len(results) == 0 && !closed.Load() {
				t.Error("a known run was not found")
			}
			for _, r := range results {
				if err == nil && r.Receipt != nil && !r.Receipt.OK() {
					t.Errorf("not confirmed: %+v", r)
				}
			}
		},
		func() {
			p, err := Attach(ctx, s.Ticket(some().ID()), func(belay.CancelRequest) {})
			if err == nil {
				_ = p.Close()
			}
		},
		func() {
			short, end := context.WithTimeout(ctx, 50*time.Millisecond)
			defer end()
			for _, err := range m.Watch(short, belay.Filter{}) {
				if err != nil && short.Err() == nil && !errors.Is(err, belay.ErrUnreachable) && !errors.Is(err, belay.ErrTooMany) {
					t.Errorf("Watch: %v", err)
				}
			}
		},
		func() {
			some().Finish(belay.Completed)
			time.Sleep(time.Millisecond) // a tree forgets the first ended runs when there are ten thousand
		},
	}
	for i := range 24 {
		wg.Go(func() {
			for ctx.Err() == nil {
				acts[i%len(acts)]()
			}
		})
	}
	time.AfterFunc(time.Second, func() { closed.Store(true); _ = s.Close() })
	wg.Wait()
	must(t, s.Close())
	if s.requests != 0 || s.lasting != 0 {
		t.Errorf("%d requests and %d lasting connections are still counted", s.requests, s.lasting)
	}
}

// A line of any kind is read within its bound or refused, and nothing breaks.
func FuzzReadLine(f *testing.F) {
	for _, seed := range []string{"", "\n", "{}\n", "{\"op\":\"list\"}\nrest", strings.Repeat("x", 5000) + "\n", "half"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 4096
		line, err := readLine(bufio.NewReaderSize(strings.NewReader(text), 16), limit)
		want, _, whole := strings.Cut(text, "\n")
		switch {
		case err == nil && string(line) != want+"\n":
			t.Errorf("%q, want %q", line, want)
		case err == nil && len(line) > limit:
			t.Errorf("a line of %d bytes", len(line))
		case err != nil && whole && len(want) < limit:
			t.Errorf("%q: %v", want, err)
		}
	})
}

// Whatever stands in the environment, reading it as a ticket never panics and
// never yields a relative socket or an empty run.
func FuzzParseTicket(f *testing.F) {
	k := newTicketKey()
	f.Add(k.mint(belay.NewRunID(), "/run/user/0/belay/12.sock"))
	f.Add("belay1:::")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseTicket(text)
		if err == nil && (got.run.IsZero() || !strings.HasPrefix(got.socket, "/") || socketPid(got.socket) <= 0) {
			t.Errorf("%q: %+v", text, got)
		}
		if _, err := k.admit(text); err == nil && !strings.Contains(text, k.secret(got.run)) {
			t.Errorf("admitted %q", text)
		}
	})
}
