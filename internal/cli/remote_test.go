//go:build unix

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/auth"
)

// TestRemote runs every script in testdata/remote: the commands against a real
// "belay serve", and against what it left behind.
func TestRemote(t *testing.T) {
	runScripts(t, "remote", func(e *testscript.Env, _ string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		e.Setenv("SELF", self) // this binary, which is also the fake tools
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/config")
		e.Setenv("BELAY_TOKEN_FILE", "")
		return os.MkdirAll(e.WorkDir+"/config", 0o700)
	}, map[string]func(*testscript.TestScript, bool, []string){
		"served": setServed,
		"later":  askLater,
		"web":    askWeb,
		"signal": sendSignal,
		"begin":  beginSession,
		"code":   runForCode,
		"json":   checkJSON,
		"within": waitFor,
		"runid":  setRunID,
		"grant":  grant,
		"turn":   holdTurn,
		"heard":  heard,

		"stopping": stopping,
		"sleep": func(ts *testscript.TestScript, _ bool, args []string) {
			d, err := time.ParseDuration(args[0])
			ts.Check(err)
			time.Sleep(d)
		},
	})
}

// grant makes a token for a principal: NAME.token gets it, belay.yaml its hash:
// grant NAME ROLE….
func grant(ts *testscript.TestScript, _ bool, args []string) {
	token, hash := auth.NewToken()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".token"), []byte(token+"\n"), 0o600))
	f, err := os.OpenFile(ts.MkAbs("belay.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	ts.Check(err)
	_, err = fmt.Fprintf(f, "    - {name: %s, hash: %q, roles: [%s]}\n", args[0], hash, strings.Join(args[1:], ", "))
	ts.Check(errors.Join(err, f.Close()))
}

// holdTurn is another runtime with a turn of its own: turn VAR NAME TOKENFILE
// sets VAR to the run's id. When it is stopped it writes the cause into
// NAME.stopped and reports.
func holdTurn(ts *testscript.TestScript, _ bool, args []string) {
	token, err := os.ReadFile(ts.MkAbs(args[2]))
	ts.Check(err)
	c, err := client.New(client.Options{Server: ts.Getenv("URL"), Token: strings.TrimSpace(string(token))})
	ts.Check(err)
	lease, err := c.Register(context.Background(), client.Registration{
		Kind: belay.KindTurn, Name: args[1], Labels: map[string]string{"trace_id": "trace-" + args[1]}, RequestID: "turn",
	})
	ts.Check(err)
	ts.Setenv(args[0], lease.Run().String())
	ctx, release := lease.Hold(context.Background())
	file := ts.MkAbs(args[1] + ".stopped")
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		if belay.CancellationOf(ctx) != nil {
			_, err := lease.Finish(ctx, nil)
			_ = os.WriteFile(file, fmt.Append(nil, context.Cause(ctx), "; reported: ", err, "\n"), 0o600)
		}
	}()
	ts.Defer(func() { release(); <-done; c.CloseIdle() })
}

// heard waits until belay ps --watch --json, which prints into a file, has
// begun to watch, and then ends: heard VAR FILE NAME registers turns until one is
// printed.
func heard(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile(ts.MkAbs(args[1])); err == nil && strings.Contains(string(text), args[2]) {
			return
		}
		holdTurn(ts, false, []string{args[0], args[2], "bot.token"})
	}
	ts.Fatalf("%s never held %s", args[1], args[2])
}

// TestTLSAdvice: where somebody answered and encryption is what failed, the advice
// is about that, and not whether a server runs.
func TestTLSAdvice(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	quiet := func(ts *httptest.Server) { ts.Config.ErrorLog = log.New(io.Discard, "", 0) }
	secure := httptest.NewUnstartedServer(nothing)
	quiet(secure)
	secure.StartTLS()
	defer secure.Close()
	strict := httptest.NewUnstartedServer(nothing)
	quiet(strict)
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	strict.StartTLS()
	defer strict.Close()
	plain := httptest.NewServer(nothing)
	defer plain.Close()
	trust := secure.Client().Transport.(*http.Transport).TLSClientConfig
	_, port, err := net.SplitHostPort(secure.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		server string
		tls    *tls.Config
		want   string
	}{
		{secure.URL, nil, "--ca FILE"},
		{"https://localhost:" + port, trust, "names that its certificate has"},
		{strict.URL, trust, "(--cert, --key)"},
		{strings.Replace(plain.URL, "http:", "https:", 1), nil, "begin its address with http://"},
		{strings.Replace(secure.URL, "https:", "http:", 1), nil, "begin its address with https://"},
	} {
		cl, err := client.New(client.Options{Server: c.server, TLS: c.tls})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cl.Latch(t.Context())
		err = (&house{door: cl, client: cl, server: c.server, local: true}).explain(err)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "running there") {
			t.Errorf("%s: %v, want %q", c.server, err, c.want)
		}
		cl.CloseIdle()
	}
}
