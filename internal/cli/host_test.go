package cli

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

// TestHostCloseNames: at Belay's end, work that was told and not seen to stop is
// named, calmly; a session, and what is confirmed, is not.
func TestHostCloseNames(t *testing.T) {
	t.Chdir(t.TempDir()) // for the witness
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		h := &host{tree: belay.NewTree(belay.Options{}), log: slog.New(slog.NewTextHandler(&logs, nil))}
		session, err := h.tree.Register(belay.Spec{Kind: belay.KindSession, Name: "srv"})
		if err != nil {
			t.Fatal(err)
		}
		for name, stopper := range map[string]belay.Stopper{"remote": holdVague{}, "local": holdTool{"local"}} {
			if _, err := h.tree.Register(belay.Spec{Kind: belay.KindCall, Name: name, Server: "srv", Parent: session, Stopper: stopper}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = h.tree.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{Kinds: []belay.Kind{belay.KindCall}},
			Cancellation: belay.Cancellation{Cause: belay.CauseUser},
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		h.close()
		if took := time.Since(begin); took > hostLimit {
			t.Errorf("the end took %v", took)
		}
		text := logs.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=INFO") || !strings.Contains(text, "remote (call of srv)") || !strings.Contains(text, "signalled") {
			t.Errorf("the log says:\n%s", text)
		}
	})
}

// TestLogIsTidy: in both forms a time has its unit, and an error that there was
// not is left out.
func TestLogIsTidy(t *testing.T) {
	for _, form := range []string{"", "json"} {
		var out bytes.Buffer
		env := &Env{Stderr: &out, Getenv: func(name string) string {
			if name == envLogFormat {
				return form
			}
			return ""
		}}
		newLog(env).Info("done", "took", 1500*time.Millisecond, "error", error(nil), "runs", 2)
		got := out.String()
		if !strings.Contains(got, "1.5s") || !strings.Contains(got, "runs") || strings.Contains(got, "error") {
			t.Errorf("%q: %s", form, got)
		}
	}
}
