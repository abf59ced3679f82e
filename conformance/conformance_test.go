package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belayhq/belay/internal/pinned"
)

// The pins must be whole, and the lock file must work with any registry: it
// holds versions and digests, no addresses.
func TestPins(t *testing.T) {
	raw, err := pins.ReadFile("suite/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := pinned.Locked(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"@modelcontextprotocol/conformance", "@modelcontextprotocol/server-everything"} {
		if pin := name + " " + locked["node_modules/"+name]; !strings.Contains(versions(), pin) {
			t.Errorf("the lock file has %s, package.json %s", pin, versions())
		}
	}
}

// write makes a folder of results as the suite does.
func write(t *testing.T, dir, folder, checks string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(folder))
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "checks.json"), []byte(checks), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReadResults(t *testing.T) {
	const time = "-2026-11-21T19-04-28-493Z"
	dir := t.TempDir()
	write(t, dir, "server-server-sse-polling"+time, `[{"id":"a","name":"A","status":"SUCCESS"},{"id":"b","name":"B","status":"INFO"}]`)
	write(t, dir, "server-ping"+time, `[{"id":"a","name":"A","status":"FAILURE","errorMessage":"why"},{"id":"a","name":"A","status":"SKIPPED"}]`)
	o, err := readResults(dir, "server")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.figures(), (figures{scenarios: 2, passed: 1, failed: 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(o.scenarios["server-sse-polling"]) != 2 || o.scenarios["ping"][0].Text != "why" {
		t.Errorf("read %+v", o.scenarios)
	}
	if err := o.agrees("\nTotal: 1 passed, 1 failed\n"); err != nil {
		t.Error(err)
	}
	for _, printed := range []string{"Total: 2 passed, 1 failed\n", "nothing"} {
		if o.agrees(printed) == nil {
			t.Errorf("%q is taken for the same", printed)
		}
	}

	write(t, dir, "auth/basic"+time, `[{"id":"a","name":"A","status":"FAILURE"}]`)
	if o, err = readResults(dir, "client"); err != nil {
		t.Fatal(err)
	}
	o.drop(pastBelay)
	if _, is := o.scenarios["auth/basic"]; is || len(o.scenarios) != 2 {
		t.Errorf("kept %v", o.figures())
	}

	write(t, dir, "server-ping-2026-11-21T19-04-28-494Z", `[]`)
	if _, err = readResults(dir, "server"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a scenario that is there twice: %v", err)
	}
}

func TestCompare(t *testing.T) {
	c := func(status string) check { return check{ID: "i", Name: "N", Status: status, Text: status + " said"} }
	prime := func(status string) check {
		return check{ID: "server-sse-priming-event", Name: "ServerSendsPrimingEvent", Status: status}
	}
	for name, test := range map[string]struct {
		scenario    string
		direct, via []check
		exit        int
		want        []string
		better      int
	}{
		"same":           {"s", []check{c(success), c(failure)}, []check{c(failure), c(success)}, 0, nil, 0},
		"log entries":    {"s", []check{c(info)}, []check{c(info), c(info)}, 0, nil, 0},
		"broken":         {"s", []check{c(success)}, []check{c(failure)}, 0, []string{"s: i (N): SUCCESS directly, FAILURE through Belay; directly: SUCCESS said; through Belay: FAILURE said"}, 0},
		"one less":       {"s", []check{c(success), c(success)}, []check{c(success)}, 0, []string{"s: i (N): SUCCESS+SUCCESS directly, SUCCESS through Belay; directly: SUCCESS said; directly: SUCCESS said; through Belay: SUCCESS said"}, 0},
		"not checked":    {"s", []check{c(success)}, []check{c(info)}, 0, []string{"s: i (N): SUCCESS directly, not checked through Belay; directly: SUCCESS said"}, 0},
		"better":         {"s", []check{c(failure)}, []check{c(success)}, 0, []string{"s: i (N): FAILURE directly, SUCCESS through Belay; directly: FAILURE said; through Belay: SUCCESS said"}, 0},
		"meant":          {"server-sse-polling", []check{prime(warning)}, []check{prime(success)}, 0, nil, 1},
		"meant and lost": {"server-sse-polling", []check{prime(warning)}, []check{prime(warning)}, 0, []string{"server-sse-polling: server-sse-priming-event (ServerSendsPrimingEvent): WARNING directly, WARNING through Belay"}, 0},
		"not run":        {"s", []check{c(success)}, nil, 0, []string{"s: did not run through Belay"}, 0},
		"not run bare":   {"s", nil, []check{c(success)}, 0, []string{"s: did not run directly"}, 0},
		"exit":           {"s", []check{c(success)}, []check{c(success)}, 1, []string{"exit code 0 directly, 1 through Belay"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			side := func(checks []check) map[string][]check {
				if checks == nil {
					return map[string][]check{}
				}
				return map[string][]check{test.scenario: checks}
			}
			list, better := compare(outcome{scenarios: side(test.direct)}, outcome{test.exit, side(test.via)})
			var got []string
			for _, d := range list {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if len(better) != test.better {
				t.Errorf("improvements: %v", better)
			}
		})
	}
}

// A group that could not be compared, or whose direct side is not the known
// one, is never equal.
func TestVerdict(t *testing.T) {
	for _, r := range []*result{{problem: "broken"}, {differences: []difference{{text: "exit"}}}} {
		r.group = &groups[0]
		if r.ok() || (&table{rows: []*result{r}}).verdict() == 0 {
			t.Errorf("taken for equal: %+v", r)
		}
	}
	if (&table{}).verdict() == 0 {
		t.Error("a run that compared nothing is not equal")
	}
}
