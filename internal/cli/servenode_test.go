package cli

import (
	"io"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/config"
)

// What the file says of the ledger reaches it: 0 is no bound there, and the
// default here; principals may have a time of their own (DESIGN 11, 15).
func TestLedgerOf(t *testing.T) {
	env := &Env{Stderr: io.Discard, Getenv: func(name string) string {
		return map[string]string{"BELAY_STATE_DIR": "/state"}[name]
	}}
	o := ledgerOf(env, &config.Ledger{
		Enabled: true, Keep: time.Hour, KeepBytes: 1 << 20,
		KeepOf: map[string]time.Duration{"ci": 24 * time.Hour, "corp:alice": 0},
	})
	if o == nil || o.Path == "" || o.Required || o.KeepFor != time.Hour || o.KeepRuns != -1 || o.KeepBytes != 1<<20 ||
		len(o.KeepOf) != 2 || o.KeepOf["ci"] != 24*time.Hour || o.KeepOf["corp:alice"] >= 0 {
		t.Errorf("%+v", o)
	}
	if o := ledgerOf(env, &config.Ledger{Enabled: true, Path: "/elsewhere/l.db"}); o == nil || !o.Required || o.Path != "/elsewhere/l.db" || o.KeepFor != -1 || o.KeepOf != nil {
		t.Errorf("%+v", o)
	}
}
