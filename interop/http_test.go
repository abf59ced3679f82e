//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestPairs: the rows are a choice, and it leaves nobody out.
func TestPairs(t *testing.T) {
	h := &harness{peers: peers{node: "node", python: map[string]string{"v1": "a/b/c/d", "v2": "a/b/c/d"}}}
	clients, servers := h.httpClients(), h.httpPeers()
	met, ways := map[string]map[string]bool{}, map[string]map[rune]bool{}
	add := func(who, whom, events string) {
		if met[who] == nil {
			met[who], ways[who] = map[string]bool{}, map[rune]bool{}
		}
		met[who][whom] = true
		for _, e := range events {
			ways[who][e] = true
		}
	}
	for _, p := range pairs {
		if _, ok := clients[p.client]; !ok {
			t.Error("no client", p.client)
		}
		if _, ok := servers[p.server]; !ok {
			t.Error("no server", p.server)
		}
		server := strings.TrimSuffix(p.server, " deaf")
		language := strings.Fields(p.client)[0]
		add(p.client, server, p.events)
		add(server, p.client, p.events)
		add("language "+language, server, p.events)
	}
	for name := range clients {
		if len(met[name]) < 2 {
			t.Errorf("client %s meets %d servers, want 2", name, len(met[name]))
		}
		if language := "language " + strings.Fields(name)[0]; len(ways[language]) < 4 {
			t.Errorf("%s is stopped in %d ways, want 4", language, len(ways[language]))
		}
	}
	for name := range servers {
		if !strings.HasSuffix(name, " deaf") && len(met[name]) < 2 {
			t.Errorf("server %s meets %d clients, want 2", name, len(met[name]))
		}
	}
}

func TestJudgeHTTP(t *testing.T) {
	remote, child := httpPeer{}, httpPeer{stdio: true}
	deafRemote, deafChild := httpPeer{deaf: true}, httpPeer{stdio: true, deaf: true}
	ok := row{belay: true, next: "ok"}
	still, alive, silent, bare := ok, ok, ok, ok
	still.stillAt, alive.alive, silent.noCancel, silent.stillAt = true, []int{7}, true, true
	bare.belay, bare.next, bare.stillAt = false, "broken", true
	for name, c := range map[string]struct {
		row  httpRow
		fail bool
	}{
		"told and ended":                      {httpRow{row: ok, server: remote, receipt: "signalled"}, false},
		"said by the server":                  {httpRow{row: ok, server: remote, receipt: "acknowledged"}, false},
		"nobody can know that":                {httpRow{row: ok, server: remote, receipt: "confirmed"}, true},
		"not told":                            {httpRow{row: ok, server: remote, receipt: "none"}, true},
		"a remote tool that listens goes on":  {httpRow{row: still, server: remote, receipt: "signalled"}, true},
		"a deaf remote tool goes on":          {httpRow{row: still, server: deafRemote, receipt: "signalled"}, false},
		"a deaf remote tool, confirmed":       {httpRow{row: still, server: deafRemote, receipt: "confirmed"}, true},
		"a child ended":                       {httpRow{row: ok, server: deafChild, receipt: "confirmed"}, false},
		"a child not proven":                  {httpRow{row: ok, server: child, receipt: "signalled"}, true},
		"a child goes on":                     {httpRow{row: still, server: deafChild, receipt: "confirmed"}, true},
		"a child's process lives":             {httpRow{row: alive, server: deafChild, receipt: "confirmed"}, true},
		"a child that listens may live":       {httpRow{row: alive, server: child, receipt: "acknowledged"}, false},
		"the POST is open":                    {httpRow{row: ok, server: child, receipt: "confirmed", post: -1}, true},
		"resumed once":                        {httpRow{row: ok, server: child, receipt: "confirmed", gets: 1}, false},
		"resumed for ever":                    {httpRow{row: ok, server: child, receipt: "confirmed", gets: 2}, true},
		"detached":                            {httpRow{row: still, server: child, receipt: "none", runsOn: true}, false},
		"detached and stopped":                {httpRow{row: ok, server: child, receipt: "confirmed", runsOn: true}, true},
		"its client says nothing":             {httpRow{row: silent, server: remote, receipt: "none", post: -1}, false},
		"facts about others":                  {httpRow{row: bare, server: remote, post: -1, gets: 9}, false},
		"the next call fails":                 {httpRow{row: row{belay: true, next: "error"}, server: child, receipt: "confirmed"}, true},
		"the next call fails after a silence": {httpRow{row: row{belay: true, next: "error", noCancel: true}, server: child}, true},
	} {
		r := c.row
		r.resumes = 1
		r.judge()
		if r.failed() != c.fail {
			t.Errorf("%s: problem %q", name, r.problem)
		}
	}
}

// TestTap: a stopped call's POST that is left open is seen, and so is its end;
// GETs are counted from the Stop on.
func TestTap(t *testing.T) {
	open := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-open:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	tap, err := newTap(target, "tick")
	if err != nil {
		t.Fatal(err)
	}
	defer tap.close()
	get := func() {
		res, err := http.Get(tap.url("/mcp"))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	get()
	res, err := http.Post(tap.url("/mcp"), "application/json", strings.NewReader(`{"method":"tools/call","params":{"name":"tick"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stop := time.Now()
	get()
	if gets, post := tap.after(stop); gets != 1 || post >= 0 {
		t.Errorf("%d GETs, want the one after the Stop; POST %v, want it open", gets, post)
	}
	close(open)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, post := tap.after(stop); post > 0 {
			break
		} else if time.Now().After(end) {
			t.Fatal("its end was not seen")
		}
	}
}

// TestOverHTTP runs the rows that need nothing installed, those of the Go SDK's
// client and servers in both eras; make interop runs the others. A remote tool
// that listens stops, a deaf one is signalled and never confirmed (MCP-G31), a
// child on stdio ends; POSTs are ended, and the session goes on (MCP-G24, G25).
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	belay, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{belay: belay, dir: t.TempDir(), jobs: 4, http: httpTable()}
	h.http.allow = weather(t)
	h.overHTTP("Go")
	for _, r := range h.http.lines {
		if r.failed() {
			t.Error(strings.Join(r.cells(), " | "))
		}
	}
	if len(h.http.lines) != 19 {
		t.Errorf("%d rows", len(h.http.lines))
	}
}
