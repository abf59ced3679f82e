//go:build unix

package serve

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func listenAt(t *testing.T, path string) (net.Listener, error) {
	t.Helper()
	return Listen(t.Context(), ListenOptions{Address: "unix:" + path})
}

// TestUnixSocket: only this user can connect; a living one is in use, what a
// process left behind is replaced, everything else stays; the file goes with the
// listener.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "belay.sock")
	l, err := listenAt(t, path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if l.Addr().String() != path {
		t.Errorf("it is at %s", l.Addr())
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("beside it are %v", names)
	}
	if _, err := listenAt(t, path); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("a living one: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_ = l.Close() // again
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}

	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if l, err = listenAt(t, path); err != nil {
		t.Fatalf("a dead one: %v", err)
	}
	// What somebody else has put there meanwhile is not ours to remove.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := listenAt(t, path); !errors.Is(err, ErrSocketPlace) || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// TestUnixSocketPlaces: places where others could put another socket, or that
// cannot be, are refused in words.
func TestUnixSocketPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, mode := range []fs.FileMode{0o770, 0o707, 0o777 | fs.ModeSticky} {
		open := filepath.Join(dir, mode.String())
		if err := os.Mkdir(open, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(open, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := listenAt(t, filepath.Join(open, "s")); !errors.Is(err, ErrSocketPlace) || !strings.Contains(err.Error(), "others can write") {
			t.Errorf("%v: %v", mode, err)
		}
		if names, _ := os.ReadDir(open); len(names) != 0 {
			t.Errorf("%v: left there: %v", mode, names)
		}
	}
	for path, want := range map[string]string{
		"relative/s":                          "not an absolute path",
		"":                                    "not an absolute path",
		filepath.Join(dir, "none", "s"):       "mkdir -m 0700",
		"/" + strings.Repeat("x", 200) + "/s": "at most",
		filepath.Join(dir, strings.Repeat("x", 99)): "at most",
	} {
		if _, err := listenAt(t, path); !errors.Is(err, ErrSocketPlace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if os.Getuid() == 0 {
		theirs := filepath.Join(dir, "theirs")
		if err := os.Mkdir(theirs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(theirs, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := listenAt(t, filepath.Join(theirs, "s")); !errors.Is(err, ErrSocketPlace) || !strings.Contains(err.Error(), "another user") {
			t.Errorf("somebody else's directory: %v", err)
		}
	}
}

// TestUnixSocketRace: of many that start at once over what a dead process left,
// exactly one has the socket, and it answers.
func TestUnixSocketRace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	for range 20 {
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		dead.Close()
		var mu sync.Mutex
		var won []net.Listener
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				l, err := listenAt(t, path)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, l)
				} else if !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d have it", len(won))
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		won[0].Close()
	}
}
