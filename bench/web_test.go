package main

import (
	"strings"
	"testing"

	"github.com/belayhq/belay/internal/faketool"
)

// TestWeb proves that the lean HTTP client does what the figures count, directly
// and through the plain proxy, in both eras.
func TestWeb(t *testing.T) {
	for _, era := range []string{eraLegacy, eraModern} {
		t.Run(era, func(t *testing.T) {
			b := &bench{rounds: 1, dir: t.TempDir()}
			witness := b.witness("w").Path
			server, err := b.serve(role(roleHTTP, witness, era), printed)
			if err != nil {
				t.Fatal(err)
			}
			defer server.stop()
			relay, err := b.serve(role(roleProxy, server.url, "x"), printed)
			if err != nil {
				t.Fatal(err)
			}
			defer relay.stop()
			for name, mid := range map[string]*service{"direct": server, "relay": relay} {
				w, err := openWeb(name, mid.url, era, "", mid)
				if err != nil {
					t.Fatal(name, err)
				}
				if _, err := w.pump(300); err != nil {
					t.Error(name, "pump:", err)
				}
				times, err := w.cancels(faketool.NewWitness(witness), name, 3)
				if err != nil || len(times) != 3 {
					t.Error(name, "cancels:", times, err)
				}
				if _, err := w.call("nothing", `{}`); err == nil {
					t.Error(name, "a call of no tool succeeded")
				}
				_ = w.close()
			}
		})
	}
}

// TestAhead proves which way round a gateway is ahead.
func TestAhead(t *testing.T) {
	r := &row{values: map[string][]float64{"belay": {10}, mcpProxy: {11}}}
	if r.ahead(-1) || r.note != "" {
		t.Error("less is better, and it is more:", r.note)
	}
	if !r.ahead(1) || !strings.Contains(r.note, mcpProxy) {
		t.Error("more is better, and it is more:", r.note)
	}
}
