package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// TestPlace: private files, and refusal of places that others can reach.
func TestPlace(t *testing.T) {
	path := at(t)
	l := open(t, path, Options{})
	must(t, l.Commit(t.Context(), ended("x", "")))
	for name, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600, path + ".lock": 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info.Mode(), err, want)
		}
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second writer: %v", err)
	}
	must(t, l.Close(t.Context()))

	must(t, os.Chmod(path, 0o644))
	must(t, open(t, path, Options{}).Close(t.Context()))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a ledger that others could read stays so: %v %v", info.Mode(), err)
	}

	dir := t.TempDir()
	link, folder, wide := filepath.Join(dir, "link"), filepath.Join(dir, "folder"), filepath.Join(dir, "wide")
	must(t, os.Symlink(path, link), os.Mkdir(folder, 0o700), os.Mkdir(wide, 0o700), os.Chmod(wide, 0o770))
	refused := []string{link, folder, filepath.Join(wide, "ledger.db")}
	if os.Getuid() == 0 { // only root can make what belongs to others
		theirs, dirs := filepath.Join(dir, "theirs"), filepath.Join(dir, "dirs")
		must(t, os.WriteFile(theirs, nil, 0o600), os.Chown(theirs, 4242, 4242), os.Mkdir(dirs, 0o700), os.Chown(dirs, 4242, 4242))
		refused = append(refused, theirs, filepath.Join(dirs, "ledger.db"))
	}
	for _, name := range refused {
		if _, err := Open(name, Options{}); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := OpenReader(name, Options{}); !errors.Is(err, ErrRefused) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s for a reader: %v", name, err)
		}
	}
	if _, err := Open("", Options{}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("no path: %v", err)
	}
}

// TestNames: a path is a path, whatever is in it.
func TestNames(t *testing.T) {
	for _, name := range []string{"a b.db", "a?mode=memory&x=1", "100%25#frag", "späť", "a'b;--"} {
		path := filepath.Join(t.TempDir(), name)
		d := ended("x", "")
		l := open(t, path, Options{})
		must(t, l.Commit(t.Context(), d), l.Close(t.Context()))
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%q is elsewhere: %v", name, err)
		}
		if _, err := open(t, path, Options{}).Get(t.Context(), d.ID); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestDamaged: a file that is no sound ledger is refused, with what to do, and
// stays as it was.
func TestDamaged(t *testing.T) {
	good := at(t)
	l := open(t, good, Options{})
	var list []belay.Detail
	for range 300 {
		list = append(list, cancelled("x", "ann", "bob", strings.Repeat("r", 500)))
	}
	must(t, l.Commit(t.Context(), list...), l.Close(t.Context()))
	whole, err := os.ReadFile(good)
	must(t, err)
	hole := append([]byte(nil), whole...)
	for i := 4096; i < len(hole)/2; i++ {
		hole[i] = 0xAA
	}
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	must(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
	must(t, err, db.Close())
	theirs, err := os.ReadFile(foreign)
	must(t, err)
	for name, content := range map[string][]byte{
		"text": []byte("hello, this is not a database at all"), "short": []byte("SQL"),
		"truncated": whole[:len(whole)/2], "hole": hole, "head only": whole[:100], "foreign": theirs,
	} {
		t.Run(name, func(t *testing.T) {
			path := at(t)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
			_, err := Open(path, Options{})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "mv "+path) {
				t.Errorf("opened: %v", err)
			}
			if _, err := OpenReader(path, Options{}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "mv "+path) {
				t.Errorf("opened by a reader: %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(content) {
				t.Errorf("the damaged file was changed: %v", err)
			}
			must(t, os.Rename(path, path+".damaged"))
			open(t, path, Options{}) // the message's advice works
		})
	}
}

// TestDamagedWhileOpen: damage that shows later stops the writing and is said.
func TestDamagedWhileOpen(t *testing.T) {
	var out lines
	l := open(t, at(t), Options{Log: out.logger()})
	must(t, l.do(t.Context(), func(context.Context) error { l.fail(nil, damage(l.path, "a page is torn")); return nil }))
	if err := l.Commit(t.Context(), ended("x", "")); !errors.Is(err, ErrNotStored) || !errors.Is(err, ErrDamaged) {
		t.Errorf("commit to a damaged file: %v", err)
	}
	if s := l.Stats(); s.Dropped != 1 || s.Queued != 0 || !errors.Is(s.Trouble, ErrDamaged) {
		t.Errorf("stats %+v", s)
	}
	if n := strings.Count(out.String(), "cannot be written"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestMigration: a file of version 1 is brought to the present form with what
// is in it; a newer one is refused.
func TestMigration(t *testing.T) {
	path := at(t)
	must(t, prepare(path), touch(path))
	db, err := dialWriter(path)
	must(t, err)
	conn, err := db.Conn(t.Context())
	must(t, err, migrate(t.Context(), conn, 0, 1))
	for i := range 3 {
		d := ended(fmt.Sprint(i), "ann")
		d.Labels = map[string]string{"trace": fmt.Sprint(i % 2), "a\"b": "ü"}
		d.Address = fmt.Sprintf(`"call-%d"`, i)
		args, err := runRow(&d.Info, nil, "")
		must(t, err)
		_, err = conn.ExecContext(t.Context(), upsertRun, append(args, verdictsRising, verdictsRising)...)
		must(t, err)
	}
	must(t, conn.Close(), db.Close())
	if _, err := OpenReader(path, Options{}); !errors.Is(err, ErrOlder) {
		t.Errorf("version 1 for a reader: %v", err)
	}
	l := open(t, path, Options{})
	if p, err := l.List(t.Context(), Query{Request: "call-2"}); err != nil || len(p.Runs) != 1 {
		t.Errorf("by request after the migration: %v %v", names(p.Runs), err)
	}
	p, err := l.List(t.Context(), Query{Labels: map[string]string{"trace": "0", "a\"b": "ü"}})
	must(t, err)
	if len(p.Runs) != 2 {
		t.Errorf("after the migration: %v", names(p.Runs))
	}
	must(t, l.do(t.Context(), func(ctx context.Context) error { return l.run(ctx, "PRAGMA user_version = 99") }), l.Close(t.Context()))
	if _, err := Open(path, Options{}); !errors.Is(err, ErrNewer) {
		t.Errorf("version 99: %v", err)
	}
	if _, err := OpenReader(path, Options{}); !errors.Is(err, ErrNewer) {
		t.Errorf("version 99 for a reader: %v", err)
	}
}
