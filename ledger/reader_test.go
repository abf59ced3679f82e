package ledger

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// files is what lies in a directory: names, and for each the content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	found := map[string]string{}
	for _, f := range list {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		must(t, err)
		found[f.Name()] = string(content)
	}
	return found
}

func reader(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := OpenReader(path, Options{})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// TestReaderAlone: without a writer everything can be read, and not a byte of
// the directory changes.
func TestReaderAlone(t *testing.T) {
	path := at(t)
	l := open(t, path, Options{})
	d := cancelled("x", "ann", "bob", "why")
	d.Address = `"call-7"`
	must(t, l.Commit(t.Context(), d, ended("y", "ann")), l.Close(t.Context()))
	if _, err := l.List(t.Context(), Query{}); !errors.Is(err, ErrClosed) {
		t.Errorf("list of a closed ledger: %v", err)
	}
	before := files(t, filepath.Dir(path))
	must(t, os.Chmod(path, 0o640))

	r := reader(t, path)
	rec, err := r.Get(t.Context(), d.ID)
	if err != nil || rec.Receipt == nil || rec.Cancellation.Reason != "why" {
		t.Errorf("get: %+v, %v", rec, err)
	}
	if _, err := r.Get(t.Context(), belay.NewRunID()); !errors.Is(err, belay.ErrNotFound) {
		t.Errorf("get of an unknown run: %v", err)
	}
	if p, err := r.List(t.Context(), Query{}); err != nil || len(p.Runs) != 2 {
		t.Errorf("list: %v, %v", p, err)
	}
	if found, _, err := r.Find(t.Context(), Query{Request: "call-7"}); err != nil || len(found) != 1 || found[0].Receipt == nil {
		t.Errorf("find: %v, %v", found, err)
	}
	var out bytes.Buffer
	must(t, r.Export(t.Context(), &out, CSV, Query{}), r.Check(t.Context()))
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("exported %d lines", n)
	}
	after := files(t, filepath.Dir(path))
	if len(after) != len(before) || after[filepath.Base(path)] != before[filepath.Base(path)] {
		t.Errorf("the reader left %d files, there were %d", len(after), len(before))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the reader changed the file's mode: %v, %v", info.Mode(), err)
	}
	must(t, r.Close())
	if _, err := r.Get(t.Context(), d.ID); !errors.Is(err, ErrClosed) {
		t.Errorf("get of a closed reader: %v", err)
	}
}

// TestReaderAbsent: what is not there is said to be, and is not made.
func TestReaderAbsent(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "empty.db"), nil, 0o600))
	for _, name := range []string{"none.db", "none/ledger.db", "empty.db"} {
		if _, err := OpenReader(filepath.Join(dir, name), Options{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("made %v", got)
	}
	if _, err := OpenReader("", Options{}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("no path: %v", err)
	}
}

// TestReaderBeside: a reader that was opened before, during and after a writer
// sees each commit from the moment it was acknowledged, and holds nobody up. The
// writer is another process, as SQLite's locks belong to one.
func TestReaderBeside(t *testing.T) {
	path := at(t)
	first := ended("first", "ann")
	l := open(t, path, Options{})
	must(t, l.Commit(t.Context(), first), l.Close(t.Context()))
	r := reader(t, path)

	var wait sync.WaitGroup
	over := make(chan struct{})
	wait.Go(func() { // looks again and again, so that some are open when the writer comes and goes
		for again := time.NewTicker(time.Millisecond); ; {
			select {
			case <-over:
				again.Stop()
				return
			case <-again.C: // not all the time: the writer needs a processor, too
			}
			if _, err := r.Get(t.Context(), first.ID); err != nil {
				t.Errorf("beside the writer: %v", err)
				return
			}
		}
	})
	for _, after := range []int{100, 300} { // each writer opens the file, commits and is killed
		acks := 0
		opened, acknowledged := killAfterSeen(t, path, after, func(id belay.RunID) {
			if acks++; acks%10 != 0 { // each look opens the file anew, which takes its time under the race detector
				return
			}
			if rec, err := r.Get(t.Context(), id); err != nil || rec.Receipt == nil || !rec.Receipt.Final {
				t.Errorf("acknowledged, but the reader has %+v, %v", rec, err)
			}
		})
		for i, id := range append(acknowledged, opened...) { // a dead writer's log is read too
			if i%20 != 0 {
				continue
			}
			if _, err := r.Get(t.Context(), id); err != nil {
				t.Fatalf("after the writer's death: %v", err)
			}
		}
		if e, err := r.Get(t.Context(), opened[0]); err != nil || e.Outcome != belay.Pending {
			t.Errorf("a reader buries nobody: %+v, %v", e, err)
		}
	}
	close(over)
	wait.Wait()
	must(t, open(t, path, Options{}).Close(t.Context()))
	if _, err := r.List(t.Context(), Query{}); err != nil {
		t.Errorf("after the writer: %v", err)
	}
}
