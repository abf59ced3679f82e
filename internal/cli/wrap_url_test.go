package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/sdkfake"
)

// TestWrapURL: a caller on stdio in front of a server that is reached by HTTP:
// calls pass, the header goes along, the caller's cancel stops the tool, and
// the end of the caller ends the session there (MCP-32, MCP-38).
func TestWrapURL(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.env = append(m.env, "TOOLS_TOKEN=abc")
	wit := faketool.NewWitness(t.TempDir() + "/witness")
	var unauthorized, deleted atomic.Int64
	sdk := sdkfake.Handler(sdkfake.Options{Witness: wit.Path})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer abc" {
			unauthorized.Add(1)
		}
		if r.Method == http.MethodDelete {
			deleted.Add(1)
		}
		sdk.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	argv := []string{"belay", "wrap", "--url", server.URL, "--header", "Authorization: Bearer $TOOLS_TOKEN"}
	c, err := faketool.StartClient(argv, faketool.ClientOptions{Env: append(m.env, "BELAY_LOG=error")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Initialize("2025-11-25"); err != nil {
		t.Fatal(err)
	}
	if err := c.Call("1", "tick", `{"key":"a"}`, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := wit.WaitFor("a", "tick", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.Cancel("1", "enough"); err != nil {
		t.Fatal(err)
	}
	if _, err := wit.WaitFor("a", "stopped", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.Call("2", "echo", `{"text":"still here"}`, ""); err != nil {
		t.Fatal(err)
	}
	if answer, err := c.Expect("2"); err != nil || !strings.Contains(answer.Text(), "still here") {
		t.Fatalf("%v %s", err, answer.Raw)
	}
	_ = c.CloseStdin()
	if !c.Ended(5 * time.Second) {
		t.Fatal("it goes on although its caller went away")
	}
	if n := unauthorized.Load(); n != 0 || deleted.Load() != 1 {
		t.Errorf("%d requests lacked the header, %d sessions were ended", n, deleted.Load())
	}
}
