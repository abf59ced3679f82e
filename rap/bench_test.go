package rap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
)

// BenchmarkInvocation is a call, from its post until its callback was taken, both
// ends in one process: with net/http alone, with either end of this package, and
// with both. What it is for is its profile; the bar is judged by bench/.
func BenchmarkInvocation(b *testing.B) {
	for _, way := range []struct {
		name            string
		runtime, server bool
	}{{"plain", false, false}, {"runtime", true, false}, {"server", false, true}, {"both", true, true}} {
		b.Run(way.name, func(b *testing.B) {
			base := plainServer(b)
			if way.server {
				base = ownServer(b)
			}
			call := plainRuntime(b, base)
			if way.runtime {
				call = ownRuntime(b, base)
			}
			call()
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

var benchArguments = json.RawMessage(`{"text":"` + strings.Repeat("x", 70) + `"}`)

type benchMessage struct {
	Operation string          `json:"operation,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	GroupID   string          `json:"group_id,omitempty"`
	ID        string          `json:"id,omitempty"`
	Callback  string          `json:"callback_url,omitempty"`
}

func benchPost(b *testing.B, c *http.Client, to string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		b.Error(err)
	}
	resp, err := c.Post(to, rap.ContentType, bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b.Error(resp.Status)
	}
}

func benchRead(b *testing.B, r *http.Request) (m benchMessage) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		b.Error(err)
	}
	return m
}

func plainServer(b *testing.B) string {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	var answering sync.WaitGroup
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	b.Cleanup(func() { s.Close(); answering.Wait(); client.CloseIdleConnections() })
	mux.HandleFunc("GET "+rap.PathDiscovery, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"bench","endpoint":"`+s.URL+`/invoke","tools":[{"name":"echo","description":"echo","inputSchema":{"type":"object"}}]}`)
	})
	mux.HandleFunc("POST /close_thread", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /invoke", func(_ http.ResponseWriter, r *http.Request) {
		m := benchRead(b, r)
		answering.Go(func() {
			benchPost(b, client, m.Callback, map[string]string{"type": "tool_result", "group_id": m.GroupID, "id": m.ID, "text": string(m.Arguments)})
		})
	})
	return s.URL
}

func ownServer(b *testing.B) string {
	tools, err := rap.NewToolset(rap.Manifest{Name: "bench"}, rap.Operation{
		Tool: rap.Tool{Name: "echo", Description: "echo"},
		Run: func(_ context.Context, j *rap.Job) (rap.Result, error) {
			return rap.Result{Text: string(j.Arguments())}, nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	h, err := rap.NewHandler(rap.HandlerOptions{Toolset: tools, Authenticator: rap.Loopback("bench")})
	if err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(h)
	b.Cleanup(func() { s.Close(); _ = h.Close(context.Background(), belay.Cancellation{}) })
	return s.URL
}

func plainRuntime(b *testing.B, base string) func() {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	b.Cleanup(client.CloseIdleConnections)
	var mu sync.Mutex
	pending := map[string]chan struct{}{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		m := benchRead(b, r)
		mu.Lock()
		defer mu.Unlock()
		close(pending[m.ID])
		delete(pending, m.ID)
	}))
	b.Cleanup(s.Close)
	seq := 0
	return func() {
		done := make(chan struct{})
		mu.Lock()
		seq++
		id := "call_" + strconv.Itoa(seq)
		pending[id] = done
		mu.Unlock()
		benchPost(b, client, base+rap.PathInvoke, benchMessage{
			Operation: "echo", Arguments: benchArguments, GroupID: "thread_1", ID: id, Callback: s.URL + "/callback/" + id,
		})
		<-done
	}
}

func ownRuntime(b *testing.B, base string) func() {
	rt, err := rap.NewRuntime(rap.RuntimeOptions{Tree: belay.NewTree(belay.Options{}), Servers: []rap.Server{{Name: "s", Base: base}}})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/rap/callback/", rt)
	s := httptest.NewServer(mux)
	b.Cleanup(func() { _ = rt.Close(context.Background(), belay.Cancellation{}); s.Close() })
	if err := rt.SetCallback(s.URL + "/rap/callback"); err != nil {
		b.Fatal(err)
	}
	th, err := rt.Open(rap.ThreadOptions{})
	if err == nil {
		err = th.Load(context.Background())
	}
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := th.Do(context.Background(), rap.CallOptions{Tool: "echo", Arguments: benchArguments}); err != nil {
			b.Fatal(err)
		}
	}
}
