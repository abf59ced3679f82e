package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
)

// projects are written as people write theirs: after the examples of the guide, and
// in the shape of what is published.
const projects = "../testdata/projects"

func loadProject(t *testing.T, name string) *script.Tool {
	t.Helper()
	tool, err := script.Load(filepath.Join(projects, name))
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// client is the official SDK's, connected to a worker.
func client(t *testing.T, o worker.Options, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	ended := make(chan struct{})
	w := worker.New(o)
	go func() { defer close(ended); _ = w.Serve(context.Background(), in, out); _ = out.Close() }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, options).Connect(t.Context(), &mcp.IOTransport{Reader: from, Writer: to},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}) // as the gateway speaks to its workers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		_ = to.Close()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("the worker did not end")
		}
	})
	return session
}

// works answers what the projects ask; "/slow" and the item "slow" wait until the test
// or the caller lets go.
type works struct {
	at      string
	network *script.Network
	begun   chan string
	gone    chan struct{}
	release chan struct{}
}

func site(t *testing.T) *works {
	t.Helper()
	w := &works{begun: make(chan string, 100), gone: make(chan struct{}, 100), release: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		switch {
		case r.URL.Path == "/find" && r.URL.Query().Get("q") == "down":
			out.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/find":
			_, _ = fmt.Fprintf(out, `<ul><li class="a" data-pages="12"> <a href="/b/1">Maps &amp; %s</a></li><li>no</li><li data-pages="3"><a href="/b/2">B%s</a></li></ul>`, r.URL.Query().Get("q"), r.URL.Query().Get("shelf"))
		case r.URL.Path == "/slow", name == "slow":
			w.begun <- "slow"
			select {
			case <-r.Context().Done():
				w.gone <- struct{}{}
			case <-w.release:
				_, _ = fmt.Fprint(out, "late")
			}
		default:
			w.begun <- name
			_, _ = fmt.Fprint(out, "done "+name)
		}
	}))
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w.at, w.network = s.URL, &script.Network{Hosts: []string{strings.TrimPrefix(s.URL, "http://")}, Transport: transport}
	return w
}

func shown(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	var all []string
	for _, c := range r.Content {
		text, ok := c.(*mcp.TextContent)
		if !ok {
			t.Fatalf("content %T", c)
		}
		all = append(all, text.Text)
	}
	return strings.Join(all, "|")
}

// TestPublicEventLog is a script that makes paths at its top level and reads files
// where there are some: it loads, and says that it has nothing (AT-79, AT-83).
func TestPublicEventLog(t *testing.T) {
	tool := loadProject(t, "event_log")
	session := client(t, worker.Options{Tools: []*script.Tool{tool}}, nil)
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Title != "Read the event log" {
		t.Fatalf("tools %+v, %v", list, err)
	}
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "event_log"})
	if err != nil || r.IsError || shown(t, r) != "There are no events yet." {
		t.Errorf("result %+v, %v", r, err)
	}
}

// TestPublicCatalogSearch is a script with a page, modules, approval and a report
// (AT-50, AT-54, AT-61, AT-66, AT-75, AT-82).
func TestPublicCatalogSearch(t *testing.T) {
	w, tool := site(t), loadProject(t, "catalog_search")
	var asked *mcp.ElicitParams
	answer := &mcp.ElicitResult{}
	said := make(chan string, 10)
	session := client(t, worker.Options{Tools: []*script.Tool{tool}, Network: w.network}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked = r.Params
			return answer, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { said <- r.Params.Message },
	})
	for name, test := range map[string]struct {
		answer mcp.ElicitResult
		query  map[string]any
		fails  bool
		want   func(text string) bool
	}{
		"allowed": {mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Allow"}}, map[string]any{"query": " sea ", "shelf": "maps"}, false, func(text string) bool {
			var r struct {
				OK    bool
				Items []struct {
					Ref, Title string
					Pages      int
				}
			}
			return json.Unmarshal([]byte(text), &r) == nil && r.OK && len(r.Items) == 2 && r.Items[0].Title == "Maps & sea" && r.Items[0].Pages == 12 &&
				r.Items[1].Title == "B2" && strings.HasPrefix(r.Items[0].Ref, "item_") && r.Items[0].Ref != r.Items[1].Ref
		}},
		"not allowed": {mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Cancel"}}, map[string]any{"query": "x"}, true, func(text string) bool { return text == "The search was not allowed." }},
		"declined":    {mcp.ElicitResult{Action: "decline"}, map[string]any{"query": "x"}, true, func(text string) bool { return text == "The search was not allowed." }},
		"closed":      {mcp.ElicitResult{Action: "cancel"}, map[string]any{"query": "x"}, true, func(text string) bool { return text == "The search was not allowed." }},
		"empty":       {mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Allow"}}, map[string]any{"query": " "}, true, func(text string) bool { return strings.Contains(text, `"code":"INVALID"`) }},
		"down":        {mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Allow"}}, map[string]any{"query": "down"}, true, func(text string) bool { return strings.Contains(text, "HTTP 502") }},
	} {
		*answer = test.answer
		test.query["base"] = w.at
		params := &mcp.CallToolParams{Name: "catalog_search", Arguments: test.query}
		params.SetProgressToken(name)
		r, err := session.CallTool(t.Context(), params)
		if err != nil || r.IsError != test.fails || !test.want(shown(t, r)) {
			t.Errorf("%s: result %+v, %v", name, r, err)
			continue
		}
		if !strings.Contains(asked.Message, "The assistant will search once.") || !strings.Contains(asked.Message, "Search the catalogue") {
			t.Errorf("%s: asked %q", name, asked.Message)
		}
		if answer.Content["answer"] == "Allow" {
			if got := <-said; got != "searching…" {
				t.Errorf("%s: reported %q", name, got)
			}
		}
	}
}

// TestSeedProjects runs the guide's examples to their ends.
func TestSeedProjects(t *testing.T) {
	w := site(t)
	close(w.release)
	var tools []*script.Tool
	for _, name := range []string{"slow_operation", "item_batch", "item_report", "outside_mistake", "approved_batch"} {
		tools = append(tools, loadProject(t, name))
	}
	session := client(t, worker.Options{Tools: tools, Network: w.network, AutoApprove: true}, nil)
	for name, want := range map[string]string{
		"slow_operation": "The slow operation is done.", "item_batch": "done a\ndone b", "item_report": "Report, 2 lines: done a, done b",
		"outside_mistake": "onCancel is null", "approved_batch": "done a\ndone b",
	} {
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"at": w.at, "items": []string{"a", "b"}}})
		if err != nil || r.IsError || shown(t, r) != want {
			t.Errorf("%s: result %+v, %v", name, r, err)
		}
	}
}

// TestSeedProjectsCancelledByCaller ends them by the caller's own cancel: the work
// ends, the server is the witness, nothing is answered, and the next call is clean
// (AT-5, AT-6, AT-12, AT-24).
func TestSeedProjectsCancelledByCaller(t *testing.T) {
	for _, name := range []string{"slow_operation", "item_batch", "item_report", "outside_mistake", "approved_batch"} {
		t.Run(name, func(t *testing.T) {
			w := site(t)
			session := client(t, worker.Options{Tools: []*script.Tool{loadProject(t, name)}, Network: w.network, AutoApprove: true, Grace: 50 * time.Millisecond}, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			answered := make(chan error, 1)
			call := func(ctx context.Context, items ...string) (*mcp.CallToolResult, error) {
				return session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: map[string]any{"at": w.at, "items": items}})
			}
			go func() {
				r, err := call(ctx, "a", "slow", "b")
				if err == nil {
					err = fmt.Errorf("it was answered: %+v", r)
				} else {
					err = nil
				}
				answered <- err
			}()
			for got := range w.begun {
				if got == "slow" {
					break
				}
			}
			cancel(context.Canceled)
			if err := <-answered; err != nil {
				t.Error(err)
			}
			select {
			case <-w.gone:
			case <-time.After(30 * time.Second):
				t.Fatal("the server still has the connection")
			}
			close(w.release)
			r, err := call(t.Context(), "c")
			if err != nil || r.IsError || strings.Contains(shown(t, r), "done a") {
				t.Errorf("the next call: %+v, %v", r, err)
			}
			for len(w.begun) > 0 {
				if got := <-w.begun; got == "b" {
					t.Error("it went on to the next item")
				}
			}
		})
	}
}
