package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// socket is a transport over a WebSocket, as an author would write it: one message
// is one text frame.
type socket struct {
	ws   *websocket.Conn
	ctx  context.Context
	end  context.CancelFunc
	once sync.Once
}

func newSocket(ws *websocket.Conn) *socket {
	ws.SetReadLimit(1 << 20)
	s := &socket{ws: ws}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

func (s *socket) Read() ([]byte, error) {
	_, m, err := s.ws.Read(s.ctx)
	if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
		err = io.EOF
	}
	return m, err
}

func (s *socket) Write(m []byte) error { return s.ws.Write(s.ctx, websocket.MessageText, m) }

func (s *socket) Close() error {
	s.once.Do(func() {
		_ = s.ws.Close(websocket.StatusNormalClosure, "")
		s.end()
	})
	return nil
}

// ends are the two ends of each kind of transport.
var ends = map[string]func(t *testing.T) (client, agent acp.Transport){
	"memory": func(*testing.T) (acp.Transport, acp.Transport) { return acp.NewPipe() },
	"stdio": func(*testing.T) (acp.Transport, acp.Transport) {
		inA, outC := io.Pipe()
		inC, outA := io.Pipe()
		return acp.NewStdio(inC, outC), acp.NewStdio(inA, outA)
	},
	"websocket": func(t *testing.T) (acp.Transport, acp.Transport) {
		accepted := make(chan *websocket.Conn, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			accepted <- ws
		}))
		t.Cleanup(server.Close)
		ws, resp, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1), &websocket.DialOptions{HTTPClient: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return newSocket(ws), newSocket(<-accepted)
	},
}

// The same on any transport: a turn with a permission, stopped; then the next turn;
// then the agent's end of the connection.
func TestACP_31_73_transports(t *testing.T) {
	for name, make2 := range ends {
		t.Run(name, func(t *testing.T) {
			client, agent := make2(t)
			asked := make(chan struct{}, 1)
			a := acp.NewAgent(agent, testAgent(func(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
				if turn.Text() == "quick" {
					return acp.StopEndTurn, turn.Say("done")
				}
				_, err := turn.RequestPermission(ctx, acp.Permission{ToolCall: acp.ToolCall{ID: "x"}, Options: []acp.PermissionOption{{ID: "ok", Name: "Allow", Kind: "allow_once"}}})
				return acp.StopEndTurn, err
			}))
			var said []string
			c := acp.NewClient(client, acp.ClientOptions{
				Info:   acp.Info{Name: "editor"},
				Update: func(_ context.Context, _ string, update json.RawMessage) { said = append(said, string(update)) },
				RequestPermission: func(ctx context.Context, _ *acp.Request) (acp.PermissionAnswer, error) {
					asked <- struct{}{}
					<-ctx.Done()
					return acp.PermissionAnswer{}, ctx.Err()
				},
			})
			if _, err := c.Initialize(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			for _, want := range []struct {
				ctx    context.Context
				text   string
				reason acp.StopReason
			}{{ctx, "slow", acp.StopCancelled}, {t.Context(), "quick", acp.StopEndTurn}} {
				got, err := c.Prompt(want.ctx, "s", acp.Text(want.text))
				if err != nil || got.Reason != want.reason {
					t.Errorf("%s: %+v, %v", want.text, got, err)
				}
			}
			if len(said) != 1 || !strings.Contains(said[0], "done") {
				t.Errorf("updates %q", said)
			}
			end, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			if err := c.Close(end); err != nil {
				t.Error(err)
			}
			select {
			case <-a.Done(): // the agent sees the client's end (ACP-73)
			case <-end.Done():
				t.Error("the agent has not seen the end")
			}
			if err := a.Close(end); err != nil {
				t.Error(err)
			}
		})
	}
}

// Lines over the bound, half a line, and what is no UTF-8 cost one message.
func TestACP_41_73_stdio_lines(t *testing.T) {
	inA, outC := io.Pipe()
	inC, outA := io.Pipe()
	seen, started := make(chan *belay.Cancellation, 1), make(chan struct{})
	a := acp.NewConn(acp.NewStdio(inA, outA), acp.Options{Role: acp.RoleAgent, Handler: func(ctx context.Context, r *acp.Request) (any, error) {
		if r.Method() == "_wait" {
			close(started)
			<-ctx.Done()
			seen <- belay.CancellationOf(ctx)
		}
		return nil, nil
	}})
	endConn(t, a)
	by := newRaw(t, acp.NewStdio(inC, outC))
	long := strings.Repeat("x", 17<<20)
	by.send(`{"jsonrpc":"2.0","id":"big","method":"_x","params":["%s"]}`, long)
	by.wantPart(`"id":"big"`, `-32600`)
	by.send("{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"_x\"}")
	by.wantPart(`"id":null`, `-32`)
	by.send(`{"jsonrpc":"2.0","id":1,"method":"_x"}`)
	by.wantPart(`"id":1`, `"result"`)
	by.send(`{"jsonrpc":"2.0","id":2,"method":"_wait"}`)
	<-started // what has not begun when the connection ends never begins
	if _, err := outC.Write([]byte(`{"jsonrpc":"2.0","id":3,"meth`)); err != nil {
		t.Fatal(err)
	}
	_ = outC.Close()
	select {
	case c := <-seen:
		if c == nil || c.Cause != belay.CauseDisconnect {
			t.Errorf("ended with %v", c)
		}
	case <-time.After(patience):
		t.Fatal("the request was not ended")
	}
	<-a.Done()
	if err := a.Err(); !errors.Is(err, acp.ErrLost) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ended with %v", err)
	}
}
