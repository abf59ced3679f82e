package node

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/tracing"
)

// TestTraces: a stopped call arrives at the receiver of the standard variables
// as a span, with the id that the gateway passes on to the server, named by its
// method, and with the Stop among its events.
func TestTraces(t *testing.T) {
	got := make(chan string, 16)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer receiver.Close()
	traces, err := tracing.FromEnv(func(name string) string {
		return map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_BSP_SCHEDULE_DELAY": "50",
		}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, t.TempDir(), func(o *Options) { o.Traces = &traces })
	answer := make(chan string, 1)
	go func() { _, text := r.call("1", ""); answer <- text }()
	id := r.running(1)[0].ID
	if status, text := r.ask(http.MethodPost, "/orchestrate/cancel", r.token(), `{"requestId":"1","wait":10}`); status != http.StatusOK {
		t.Fatal(status, text)
	}
	<-answer
	want := hex.EncodeToString(id[8:])
	var seen strings.Builder
	for limit := time.After(10 * time.Second); ; {
		select {
		case body := <-got:
			seen.WriteString(body)
			if strings.Contains(body, want) && strings.Contains(body, `"events"`) {
				for _, has := range []string{`"name":"tools/call wait"`, `"mcp.method.name"`, `"gen_ai.tool.name"`} {
					if !strings.Contains(body, has) {
						t.Errorf("no %s in %s", has, body)
					}
				}
				return
			}
		case <-limit:
			t.Fatalf("no span %s came: %s", want, seen.String())
		}
	}
}
