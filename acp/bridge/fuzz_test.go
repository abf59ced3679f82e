package bridge

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belayhq/belay/jsonrpc"
)

// FuzzBridge lets both ends say anything, in any order and at any time. Whatever it
// is: each end hears only messages, each request of the editor that has an id of its
// own has one answer when all is over, no answer comes for what was not asked, and
// no run is left in flight.
func FuzzBridge(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, one := range archive.Files {
			var seed strings.Builder
			for line := range strings.Lines(string(one.Data)) {
				switch {
				case strings.HasPrefix(line, "e> "), strings.HasPrefix(line, "a> "):
					seed.WriteString(line[:1] + line[3:])
				case strings.HasPrefix(line, "wait "):
					seed.WriteString("w\n")
				}
			}
			f.Add(seed.String())
		}
	}
	f.Fuzz(func(t *testing.T, script string) {
		if len(script) > 1<<16 {
			return
		}
		synctest.Test(t, func(t *testing.T) { fuzzOne(t, script) })
	})
}

// Lines that mean something, of all transcripts, in random order: what fuzzing by
// bytes finds late. Each script begins with a session of version 1 or 2.
func TestACP_B3_RandomDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	var pool []string
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range archive.Files {
			for line := range strings.Lines(string(one.Data)) {
				if (strings.HasPrefix(line, "e> ") || strings.HasPrefix(line, "a> ")) && !strings.Contains(line, `"protocolVersion"`) {
					pool = append(pool, line[:1]+strings.TrimSpace(line[3:]))
				}
			}
		}
	}
	hop := regexp.MustCompile(`"b-\d+"`)
	for seed := range uint64(150) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		script := []string{
			fmt.Sprintf(`e{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%d}}`, 1+seed%2),
			fmt.Sprintf(`a{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":%d,"agentCapabilities":{"sessionCapabilities":{"close":{}}}}}`, 1+seed%2),
			`e{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`,
			`a{"jsonrpc":"2.0","id":"b-2","result":{"sessionId":"s_7"}}`,
			`e{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_7","prompt":[]}}`,
		}
		for range 60 {
			line := pool[rnd.IntN(len(pool))]
			if rnd.IntN(4) == 0 {
				line = "w"
			}
			script = append(script, hop.ReplaceAllStringFunc(line, func(string) string { return fmt.Sprintf(`"b-%d"`, 1+rnd.IntN(20)) }))
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fuzzOne(t, strings.Join(script, "\n")) })
		})
	}
}

func fuzzOne(t *testing.T, script string) {
	tree := newFakeTree()
	r := newRig(t, Options{Offspring: tree, Front: &fakeFront{f: tree}, Agent: fakeAgent{tree}})
	asked := map[string]int{} // the editor's requests, by id
	bad := map[string]int{}   // what was meant to be one, perhaps: it may be refused by its id
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		switch what, text := line[0], line[1:]; what {
		case 'w':
			time.Sleep(1500 * time.Millisecond)
		case 'e':
			var e jsonrpc.Envelope
			if err := jsonrpc.Parse([]byte(text), &e); err != nil {
				bad[e.ID.Key()]++
			} else if e.Kind == jsonrpc.Request {
				asked[e.ID.Key()]++
			}
			r.editor.try(text)
		case 'a':
			r.agent.try(text)
		}
		select {
		case <-r.served:
		default:
			synctest.Wait()
		}
	}
	r.end()
	answers := map[string]int{}
	for _, p := range []*peer{r.editor, r.agent} {
		for _, line := range p.heard() {
			var e jsonrpc.Envelope
			if err := jsonrpc.Parse([]byte(line), &e); err != nil {
				t.Fatalf("the %s heard what is no message: %q: %v", p.name, line, err)
			}
			if p == r.editor && e.Kind == jsonrpc.Response {
				answers[e.ID.Key()]++
			}
		}
	}
	for id, n := range asked {
		if answers[id] < n && r.result.Reason == Shutdown {
			t.Errorf("request %s has %d answers, and was asked %d times", id, answers[id], n)
		}
		if answers[id] > n+bad[id] && id != jsonrpc.NullID().Key() {
			t.Errorf("request %s has %d answers, and was asked %d times", id, answers[id], n)
		}
	}
	if left := r.tree.InFlight(); left > 0 {
		t.Errorf("%d runs are left in flight", left)
	}
}

// try writes a line if the bridge still reads.
func (p *peer) try(line string) { _, _ = p.in.Write([]byte(line + "\n")) }
