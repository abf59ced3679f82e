package httpclient

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// waiter tells when an answer has come.
type waiter struct{ came chan struct{} }

func (w *waiter) Message(m *mcp.Message, _ jsonrpc.ID, _ int) { w.came <- struct{}{} }
func (w *waiter) Lost(_ jsonrpc.ID, err error)                { panic(err) }
func (w *waiter) Over(err error)                              { panic(err) }

// BenchmarkCall is a call and its answer over loopback: by this package, and
// bare, as a reverse proxy would send it (DESIGN section 9).
func BenchmarkCall(b *testing.B) {
	for _, kind := range []string{"JSON", "events"} {
		answer := []byte(`{"jsonrpc":"2.0","id":"b-1","result":{"content":[{"type":"text","text":"hello"}]}}`)
		contentType := typeJSON
		if kind == "events" {
			answer, contentType = jsonrpc.AppendEvent(nil, "", "message", answer), typeEvents
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(answer)
		}))
		defer s.Close()
		for name, call := range map[string]string{"modern": modernCall, "legacy": legacyCall} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				w := &waiter{make(chan struct{})}
				c, err := Open(Config{URL: s.URL, Client: client(b)}, w)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = c.Close(b.Context()) }()
				frame := fmt.Appendf(nil, call, "b-1")
				b.ReportAllocs()
				for b.Loop() {
					if err := c.Send(frame, nil); err != nil {
						b.Fatal(err)
					}
					<-w.came
				}
			})
		}
		b.Run(kind+"/bare", func(b *testing.B) {
			tr := client(b)
			frame := fmt.Appendf(nil, modernCall, "b-1")
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL, struct{ io.Reader }{bytes.NewReader(frame)})
				if err != nil {
					b.Fatal(err)
				}
				req.ContentLength = int64(len(frame))
				req.Header.Set("Content-Type", typeJSON)
				req.Header.Set("Accept", typeJSON+", "+typeEvents)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}
