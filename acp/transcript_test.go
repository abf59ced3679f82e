package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belayhq/belay/acp"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestTranscripts plays the other side of each connection in testdata and compares
// what the library answers. A file has two sections: "setup" says which end the
// library is, "wire" is all that passes, "> " from the client and "< " from the
// agent, and between them
//
//	~ 6s            time goes by
//	! WORDS         what the author of a client does: see play
//	= WORDS         what came of it
//
// Transcripts are the readable half: which lines pass in which order. What they
// stand for is proven by the tests with a name.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Files) != 2 || a.Files[0].Name != "setup" || a.Files[1].Name != "wire" {
				t.Fatal("want the sections setup and wire")
			}
			want := string(a.Files[1].Data)
			var got string
			synctest.Test(t, func(t *testing.T) {
				got = replay(t, strings.Fields(string(a.Files[0].Data)), want)
			})
			if *update {
				a.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// player plays one transcript.
type player struct {
	t      *testing.T
	hand   *raw // the other side
	mark   string
	out    strings.Builder
	client *acp.Client // if the library is one
	stop   context.CancelFunc
	came   chan string // what came of the client's doings
}

var minted = regexp.MustCompile(`(run|m|a)_[0-9a-z]{26}`)

func replay(t *testing.T, setup []string, script string) string {
	p := &player{t: t, came: make(chan string, 10), stop: func() {}}
	switch setup[0] {
	case "agent":
		client, agent, _ := newWire(t, false, true)
		o := testAgent(transcriptTurn)
		o.Versions, o.Handler = []int{1, 2}, transcriptRequest
		o.CloseSession = func(context.Context, string) error { return nil }
		a := acp.NewAgent(agent, o)
		endConn(t, a.Conn())
		p.hand, p.mark = newRaw(t, client), "> "
	case "client":
		client, agent, _ := newWire(t, true, false)
		o := acp.ClientOptions{Info: acp.Info{Name: "editor", Version: "1"}, Version: acp.Version1, Options: acp.Options{Handler: transcriptRequest}}
		o.RequestPermission = func(ctx context.Context, _ *acp.Request) (acp.PermissionAnswer, error) {
			<-ctx.Done()
			return acp.PermissionAnswer{Option: "ok"}, nil // too late
		}
		if setup[1] == "v2" {
			o.Version = acp.Version2
		}
		p.client = acp.NewClient(client, o)
		endConn(t, p.client.Conn())
		p.hand, p.mark = newRaw(t, agent), "< "
	default:
		t.Fatalf("setup %q", setup)
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, p.mark):
			p.say(line)
			p.hand.send("%s", strings.TrimPrefix(line, p.mark))
		case strings.HasPrefix(line, "~ "):
			p.say(line)
			d, err := time.ParseDuration(line[2:])
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
		case strings.HasPrefix(line, "! "):
			p.say(line)
			p.play(strings.Fields(line[2:]))
		case line == "":
			p.say(line)
		}
		p.settle()
	}
	p.stop()
	return p.out.String()
}

func (p *player) say(line string) { fmt.Fprintln(&p.out, minted.ReplaceAllString(line, "${1}_…")) }

// settle writes down what the library does by itself.
func (p *player) settle() {
	theirs := map[string]string{"> ": "< ", "< ": "> "}[p.mark]
	for {
		synctest.Wait()
		select {
		case line := <-p.hand.lines:
			p.say(theirs + line)
			continue
		default:
		}
		select { // what came of it is told after what passed
		case word := <-p.came:
			p.say("= " + word)
		default:
			return
		}
	}
}

// play does what an author of a client does: initialize, prompt SESSION TEXT, stop
// (the end of the ctx of what was begun last), call METHOD, close SESSION.
func (p *player) play(words []string) {
	if words[0] == "stop" {
		p.stop()
		return
	}
	ctx, stop := context.WithCancel(p.t.Context())
	p.stop = stop
	go func() {
		switch words[0] {
		case "initialize":
			_, err := p.client.Initialize(ctx)
			p.came <- inWords("initialized", err)
		case "prompt":
			got, err := p.client.Prompt(ctx, words[1], acp.Text(strings.Join(words[2:], " ")))
			p.came <- inWords(string(got.Reason), err)
		case "call":
			var got json.RawMessage
			err := p.client.Conn().Call(ctx, words[1], nil, &got)
			p.came <- inWords(string(got), err)
		case "close":
			p.came <- inWords("closed", p.client.CloseSession(ctx, words[1]))
		}
	}()
}

func inWords(ok string, err error) string {
	if stop, ok := errors.AsType[*acp.CancelError](err); ok {
		return "cancelled, " + string(stop.Verdict)
	}
	if err != nil {
		return err.Error()
	}
	return ok
}

// transcriptTurn is what the agent of the transcripts does.
func transcriptTurn(ctx context.Context, t *acp.Turn) (acp.StopReason, error) {
	if !strings.HasPrefix(t.Text(), "held") {
		if err := t.Insert("m_1"); err != nil {
			return "", err
		}
	}
	switch {
	case strings.HasPrefix(t.Text(), "suite"):
		_ = t.ToolCall(acp.ToolCall{ID: "tc_1", Title: "make test", Kind: "execute", Status: "in_progress"})
		term, err := t.CreateTerminal(ctx, acp.TerminalRequest{Command: "make"})
		if err != nil {
			return "", err
		}
		_, err = term.Wait(ctx)
		_ = t.ToolCall(acp.ToolCall{ID: "tc_1", Status: "failed"})
		return "", err
	case strings.HasPrefix(t.Text(), "ask"):
		_, err := t.RequestPermission(ctx, acp.Permission{ToolCall: acp.ToolCall{ID: "tc_2", Title: "rm"}, Options: []acp.PermissionOption{{ID: "ok", Name: "Allow", Kind: "allow_once"}}})
		return acp.StopEndTurn, err
	case strings.HasPrefix(t.Text(), "deaf"):
		time.Sleep(time.Minute)
		_ = t.Say("too late")
	case strings.Contains(t.Text(), "wait"):
		<-ctx.Done()
		return "", ctx.Err()
	}
	return acp.StopEndTurn, t.Say("done.")
}

// transcriptRequest is what either end does with other requests.
func transcriptRequest(ctx context.Context, r *acp.Request) (any, error) {
	switch r.Method() {
	case "_echo":
		return r.Params(), nil
	case "_deaf":
		time.Sleep(time.Minute)
		return "too late", nil
	case "session/list", "_wait", acp.MethodWaitForExit:
		<-ctx.Done()
		return nil, ctx.Err()
	case acp.MethodReadTextFile:
		<-ctx.Done()
		return map[string]string{"content": "first 400 lines"}, nil // partial
	}
	return nil, acp.MethodNotFound(r.Method())
}
