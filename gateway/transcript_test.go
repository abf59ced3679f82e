package gateway

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

var update = flag.Bool("update", false, "write what was received into the transcripts")

// TestTranscripts plays both ends of a session line by line. The comment of a
// transcript names what it proves and may set options ("enforce: auto"). The
// lines of its file "wire" are:
//
//	c> LINE    the client sends it            s> LINE    the server sends it
//	s< LINE    exactly this reaches the server, next
//	c< LINE    exactly this reaches the client, next
//	stop ID    a person stops the call from outside
//
// Whatever reaches an end that is not in the transcript fails it. Ids of runs
// are written as run_*. With -update the received lines are written anew; read
// the difference before believing it.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { playFile(t, file) })
	}
}

func playFile(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			archive.Files[i].Data = playWire(t, string(archive.Comment), string(f.Data))
		})
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// playWire plays one transcript and returns it with what was received.
func playWire(t *testing.T, comment, wire string) []byte {
	r, server, _ := play(t, linkOptions{cfg: func(c *Config) {
		c.Enforce = EnforceStrict // adds no progress token; no transcript lives until the grace is over
		c.Ladder = belay.Ladder{}
		if strings.Contains(comment, "enforce: auto") {
			c.Enforce = EnforceAuto
		}
	}})
	ends := map[byte]*end{'c': {Client: r.Client}, 's': {Client: server}}
	var out strings.Builder
	for line := range strings.Lines(wire) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case len(line) > 3 && line[1] == '>':
			ends[line[0]].say(t, line[3:])
		case len(line) > 3 && line[1] == '<':
			text := ends[line[0]].next(t)
			if text != line[3:] && !*update {
				t.Fatalf("%s:\n got %s\nwant %s", line[:2], text, line[3:])
			}
			line = line[:3] + text
		case strings.HasPrefix(line, "stop "):
			r.stopNow(strings.TrimPrefix(line, "stop "))
		case line != "" && line[0] != '#':
			t.Fatalf("a line that means nothing: %q", line)
		}
		out.WriteString(line + "\n")
	}
	ends['c'].say(t, `{"jsonrpc":"2.0","method":"notifications/end"}`)
	ends['s'].say(t, `{"jsonrpc":"2.0","method":"notifications/end"}`)
	for name, e := range ends {
		if text := e.next(t); text != `{"jsonrpc":"2.0","method":"notifications/end"}` {
			t.Errorf("%c< got a line that is not in the transcript: %s", name, text)
		}
	}
	return []byte(out.String())
}

// stopNow is stop with a caller who waits for no partial result.
func (r *link) stopNow(id string) {
	r.t.Helper()
	run := r.runOf(id)
	_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, Reason: "enough"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// end is one end of the wire: what it has received is taken line by line.
type end struct {
	*faketool.Client
	taken int
}

func (e *end) say(t *testing.T, line string) {
	t.Helper()
	if err := e.Send(line); err != nil {
		t.Fatal(err)
	}
}

var runIDs = regexp.MustCompile(`run_[0-9a-z]{26}`)

func (e *end) next(t *testing.T) string {
	t.Helper()
	return runIDs.ReplaceAllString(e.message(t).Raw, "run_*")
}

func (e *end) message(t *testing.T) faketool.Message {
	t.Helper()
	n := 0
	m, err := e.Await("another line", func(faketool.Message) bool {
		n++
		return n > e.taken
	})
	if err != nil {
		t.Fatal(err)
	}
	e.taken++
	return m
}

// TestFrameFidelity sends odd but valid messages both ways and compares bytes:
// only the id may differ (MCP-G2).
func TestFrameFidelity(t *testing.T) {
	t.Parallel()
	payloads := []string{
		`{"a":1.0,"b":1e5,"c":1E+2,"d":-0,"e":1152921504606846977,"f":0.1000,"g":1.5}`,
		`{"z":1,"a":2,"m":{"z":1,"a":2}}`,
		`{"u":"\u00fc\ud83d\ude80\/\b\f","raw":"ü🚀/","nul":"\u0000","lone":"\ud800"}`,
		`{"a":1,"a":2,"":null,"deep":[[[[[{}]]]]]}`,
		`{ "spaces" :	[ 1 , 2 ]  , "x":"y" }`,
		`[1,2,3]`,
		`{}`,
		`{"id":"not the envelope's","method":"x","jsonrpc":"1.0","params":{"id":7}}`,
	}
	r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceStrict }})
	client, far := &end{Client: r.Client}, &end{Client: server}
	same := func(who, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("the %s got\n %s want\n %s", who, got, want)
		}
	}
	n := 0
	for _, p := range payloads {
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":%s,"method":"resources/read","params":` + p + `,"extra":` + p + `}`,
			` {  "params":` + p + `, "method" : "x/unknown" ,"id": %s ,"jsonrpc":"2.0"  }`,
		} {
			n++
			id, ours := fmt.Sprintf("%d.0", n), fmt.Sprintf(`"b-%d"`, n)
			client.say(t, fmt.Sprintf(frame, id))
			same("server", far.next(t), fmt.Sprintf(frame, ours))
			answer := `{"result":` + p + `,"more":` + p + `,"id":%s,"jsonrpc":"2.0"}`
			far.say(t, fmt.Sprintf(answer, ours))
			same("client", client.next(t), fmt.Sprintf(answer, id))
		}
		notice := `{"jsonrpc":"2.0","method":"notifications/x","params":` + p + `,"extra":` + p + `}`
		client.say(t, notice)
		same("server", far.next(t), notice)
		far.say(t, notice)
		same("client", client.next(t), notice)
	}
}
