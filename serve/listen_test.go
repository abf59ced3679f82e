package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// TestListen: other machines are let in only where that is said, and a port in use
// is said in words.
func TestListen(t *testing.T) {
	l, err := Listen(t.Context(), ListenOptions{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(t.Context(), ListenOptions{Address: l.Addr().String()}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("in use: %v", err)
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1.example.com:0"} {
		if _, err := Listen(t.Context(), ListenOptions{Address: address}); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("%s: %v", address, err)
		}
	}
	_, err = Listen(t.Context(), ListenOptions{Address: "0.0.0.0:8080"})
	for _, line := range []string{"ssh -L", "belay.yaml", `listen: "0.0.0.0:8080"`, "auth:", "tls:", "belay token new"} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("the refusal does not say %s: %v", line, err)
		}
	}
	if _, err := Listen(t.Context(), ListenOptions{Address: "unix:/x/y", TLS: &tls.Config{}}); !errors.Is(err, ErrSocketPlace) {
		t.Errorf("TLS on a unix socket: %v", err)
	}
	for _, address := range []string{"7474", "127.0.0.1", "127.0.0.1:http:1", "127.0.0.1:99999"} {
		if _, err := Listen(t.Context(), ListenOptions{Address: address}); err == nil {
			t.Errorf("%s is taken", address)
		}
	}
	for _, address := range []string{"localhost:0", "127.0.0.2:0"} {
		l, err := Listen(t.Context(), ListenOptions{Address: address})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		l.Close()
	}
}

var discard = slog.New(slog.DiscardHandler)

func waitDead(pids []int) []int { return faketool.WaitDead(pids, 5*time.Second) }

// answerAll is a server that answers every request, in both eras.
func answerAll(_ context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.ID == nil {
			continue
		}
		result := `{"content":[]}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"in","version":"1"}}`
		case "server/discover":
			result = `{"supportedVersions":["2026-07-28"],"capabilities":{},"serverInfo":{"name":"in","version":"1"}}`
		}
		if _, err := fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result); err != nil {
			return err
		}
	}
	return lines.Err()
}
