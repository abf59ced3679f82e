package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// plain is a legacy HTTP server without sessions, whose tick tool heeds the one
// sign of a cancel or the other. Servers of both kinds exist (MCP-G20).
type plain struct {
	witness string
	notice  bool // the notification ends a call, a closed POST does not; else the other way round

	mu    sync.Mutex
	calls map[string]chan struct{} // by id; closed by the notification
}

func (p *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			RequestID json.RawMessage
			Name      string
			Arguments struct {
				Key  string
				Text string
				N    int
				Deaf bool
			}
			Meta struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		}
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	reply := func(result string) {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	a := m.Params.Arguments
	switch {
	case m.Method == "notifications/cancelled":
		p.told(string(m.Params.RequestID))
		w.WriteHeader(http.StatusAccepted)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		w.Header().Set("Content-Type", "application/json")
		reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"plain","version":"1"}}`)
	case m.Params.Name == "tick":
		w.Header().Set("Content-Type", "text/event-stream")
		ticked := func(n int) {
			if m.Params.Meta.Token != nil {
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d}}\n\n", m.Params.Meta.Token, n)
			}
			w.(http.Flusher).Flush()
		}
		over := p.begin(string(m.ID)) // before the first sign of life, or a quick cancel would be lost
		ticked(0)
		if p.tick(over, string(m.ID), a.Key, a.N, a.Deaf, r.Context().Done(), ticked) {
			_, _ = io.WriteString(w, "data: ")
			reply(`{"content":[{"type":"text","text":"done"}]}`)
			_, _ = io.WriteString(w, "\n\n")
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		reply(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, a.Text))
	}
}

func (p *plain) told(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if over := p.calls[id]; over != nil {
		delete(p.calls, id)
		close(over)
	}
}

func (p *plain) begin(id string) <-chan struct{} {
	over := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[id] = over
	return over
}

// tick is false if it was stopped.
func (p *plain) tick(over <-chan struct{}, id, key string, n int, deaf bool, left <-chan struct{}, ticked func(int)) bool {
	defer p.told(id)
	stop := left
	if p.notice {
		stop = over
	}
	if deaf {
		stop = nil
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i := range n {
		select {
		case <-stop:
			faketool.Record(p.witness, key, "stopped", "")
			return false
		case <-ticker.C:
			faketool.Record(p.witness, key, "tick", fmt.Sprint(i+1))
			ticked(i + 1)
		}
	}
	faketool.Record(p.witness, key, "done", "")
	return true
}
