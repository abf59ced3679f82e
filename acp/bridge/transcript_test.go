package bridge

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belayhq/belay"
)

var updateFlag = flag.Bool("update", false, "write what was received into the transcripts")

// TestTranscripts plays editor and agent line by line, in virtual time. A file of an
// archive is one transcript; its first lines may set "enforce: lenient" and the like.
//
//	e> LINE      the editor says it           a> LINE      the agent says it
//	a< LINE      this reaches the agent       e< LINE      this reaches the editor
//	wait 5s      time passes
//	stop KIND    an operator stops the newest run of this kind; press: once more
//	eof e        that end closes its output   shutdown     Belay is to end
//	show KIND    the newest run of the kind, as the next line says
//
// All that reaches an end is in the transcript, and each line that Belay has
// composed is valid by the protocol's schema. With -update the received lines are
// written anew; read the difference before believing it.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range archive.Files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+f.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := playTranscript(t, string(f.Data))
					if *updateFlag {
						archive.Files[i].Data = []byte(got)
					} else if diff := cmp.Diff(string(f.Data), got); diff != "" {
						t.Errorf("- the transcript, + what happened:\n%s", diff)
					}
				})
			})
		}
		if *updateFlag && !t.Failed() {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func playTranscript(t *testing.T, script string) string {
	var set Settings
	for line := range strings.Lines(script) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.ContainsAny(name, " {") {
			continue
		}
		switch name {
		case "enforce":
			set.Enforce = Enforce(value)
		case "background":
			set.Background = Background(value)
		case "turn_deadline":
			set.TurnDeadline, _ = time.ParseDuration(value)
		}
	}
	r := newRig(t, Options{Settings: set})
	judge := newJudge(t)
	peers := map[byte]*peer{'e': r.editor, 'a': r.agent}
	var out strings.Builder
	drain := func() {
		for _, who := range []byte("ae") {
			for _, line := range peers[who].heard() {
				judge.look(who, line)
				fmt.Fprintf(&out, "%c< %s\n", who, runID.ReplaceAllString(line, "RUN"))
			}
		}
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > 2 && line[1] == '<' || strings.HasPrefix(line, "= ") {
			continue // what happened then
		}
		out.WriteString(line + "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "e>", "a>":
			judge.hear(word[0], rest)
			peers[word[0]].say(rest)
		case "wait":
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
		case "stop", "press":
			r.operator(belay.Kind(rest), word == "press")
		case "eof":
			_ = peers[rest[0]].in.Close()
		case "shutdown":
			r.stop(context.Canceled)
		case "show":
			synctest.Wait()
			d := r.run(belay.Kind(rest))
			fmt.Fprintf(&out, "= %s %q: %s, %s", rest, d.Name, d.Outcome, d.Work)
			if d.Receipt != nil {
				fmt.Fprintf(&out, ", %s by %s", d.Receipt.Verdict, d.Cancellation.Cause)
			}
			out.WriteString("\n")
		}
		drain()
	}
	r.end()
	return out.String()
}

// operator is somebody else's Stop of the newest run of a kind.
func (r *rig) operator(kind belay.Kind, again bool) {
	r.Helper()
	_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{r.run(kind).ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "ops", Reason: "enough"},
		Escalate:     again,
	})
	if err != nil {
		r.Fatal(err)
	}
}
