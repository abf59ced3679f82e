package httpclient

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// A server that never answers a notification holds up the others for a while
// only; refused ones cost nothing; and the queue has a bound.
func TestNotificationsThatHang(t *testing.T) {
	s := newServer(t, func(s *server, x *exchange) {
		switch {
		case strings.Contains(x.body, "hang"):
			x.hang(s)
		case strings.Contains(x.body, "refused"):
			x.WriteHeader(http.StatusBadRequest)
		default:
			x.WriteHeader(http.StatusAccepted)
		}
	})
	c, r := open(t, Config{URL: s.URL, AnswerWait: 50 * time.Millisecond})
	for _, name := range []string{"hang", "refused", "last"} {
		send(t, c, `{"jsonrpc":"2.0","method":"notifications/%s"}`, name)
	}
	s.wait(t, 1, "notifications/last")
	s.wait(t, 1, "gone")

	c, _ = open(t, Config{URL: s.URL})
	var err error
	for big := (notice{frame: []byte(`"hang` + strings.Repeat("x", 1<<20) + `"`)}); err == nil; {
		err = c.enqueue(big)
	}
	if !errors.Is(err, jsonrpc.ErrQueueFull) {
		t.Error(err)
	}
	if len(r.all()) != 0 {
		t.Error(r.all())
	}
	if err := c.Close(within(t)); err != nil {
		t.Error(err)
	}
	if err := c.Send([]byte(initialized), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	bad := `{"jsonrpc":"2.0","method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}}`
	if err := c.Send([]byte(bad), nil); !errors.Is(err, jsonrpc.ErrKind) {
		t.Error(err)
	}
}
