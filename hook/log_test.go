package hook

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// DESIGN 11, 15: no argument of the call gets into logs, errors, evidence or
// plans, and nothing that a command prints is shown where it cannot be redacted.
func TestArgumentsAreNotShown(t *testing.T) {
	const secret = "hunter2-and-more"
	asIs := func(s string) string { return s }
	for _, redact := range []func(string) string{nil, asIs} {
		var out bytes.Buffer
		h := &Hooks{
			Tell:      program("echo", "{args.s}"),
			Terminate: &Action{HTTP: &HTTP{URL: "http://127.0.0.1:1/{args.s}?x={args.s}"}},
			Kill:      &Action{Command: []string{"/no/such/program", "{args.s}"}},
			Alive:     program("exit", "0"),
		}
		s := h.For(Call{
			Args: []byte(`{"s":"` + secret + `"}`), Redact: redact,
			Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		err := s.Tell(t.Context(), nil)
		_, err2 := s.Terminate(t.Context(), nil)
		_, err3 := s.Kill(t.Context(), nil)
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, ErrFailed) {
				t.Errorf("error %v", err)
			}
		}
		all := errors.Join(err, err2, err3).Error() + s.Plan() + s.evidence().Detail + out.String()
		if strings.Contains(all, secret) || strings.Contains(all, "no such box") != (redact != nil) {
			t.Errorf("redacted %t:\n%s", redact != nil, all)
		}
		for _, want := range []string{"tell hook", "terminate hook", "kill hook", "alive hook", "127.0.0.1:1", "/no/such/program", "step=alive"} {
			if !strings.Contains(all, want) {
				t.Errorf("%q is not shown:\n%s", want, all)
			}
		}
	}
}

// A daemon's unix socket is asked as any server.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "docker" || r.URL.Path != "/containers/a b/json" {
			w.WriteHeader(http.StatusTeapot)
		}
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	s := (&Hooks{Alive: &Action{HTTP: &HTTP{URL: "http://docker/containers/{args.name}/json", Socket: path}}}).For(Call{Args: []byte(`{"name":"a b"}`)})
	if alive, known, err := s.Alive(t.Context(), nil); !alive || !known || err != nil {
		t.Errorf("alive %t, known %t, %v", alive, known, err)
	}
}

// Who waits for a place when the ladder ends goes away.
func TestWaitingForAPlaceEnds(t *testing.T) {
	for range maxRunning {
		running <- struct{}{}
	}
	defer func() {
		for range maxRunning {
			<-running
		}
	}()
	why := errors.New("over")
	ctx, end := context.WithCancelCause(t.Context())
	end(why)
	h := &Hooks{Kill: program("exit", "0"), Alive: program("exit", "0")}
	if _, _, err := h.For(Call{}).Alive(ctx, nil); !errors.Is(err, why) {
		t.Errorf("a check: %v", err)
	}
	if _, err := (&Hooks{Kill: h.Kill}).For(Call{}).Kill(ctx, &belay.Cancellation{}); !errors.Is(err, why) {
		t.Errorf("a kill: %v", err)
	}
	if len(checks) != 0 {
		t.Errorf("%d places of checks were not given back", len(checks))
	}
}
