package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/belayhq/belay"
)

// The environment variables of this package.
const (
	EnvDir    = "BELAY_RUNTIME_DIR" // the runtime directory, instead of the user's own
	EnvParent = "BELAY_PARENT"      // the ticket of the run above
)

// Dir is where this process's socket belongs: $BELAY_RUNTIME_DIR, else
// $XDG_RUNTIME_DIR/belay, else belay-<uid> in $TMPDIR or /tmp. It makes and
// checks nothing.
//
// Clients start tool servers with next to no environment, so XDG_RUNTIME_DIR
// is often missing exactly where it matters; the place where systemd puts it
// is tried then.
func Dir(getenv func(string) string) string { return Dirs(getenv)[0] }

// Dirs is every directory in which Belay processes of this user may have put
// their sockets, the preferred one first: processes started with different
// environments must still see one another. With BELAY_RUNTIME_DIR it is that
// one alone.
func Dirs(getenv func(string) string) []string {
	if dir := getenv(EnvDir); dir != "" {
		return []string{dir}
	}
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	uid := strconv.Itoa(os.Getuid())
	if xdg := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(xdg) {
		add(filepath.Join(xdg, "belay"))
	}
	if run := filepath.Join("/run/user", uid); checkPrivate(run) == nil {
		add(filepath.Join(run, "belay"))
	}
	if tmp := getenv("TMPDIR"); filepath.IsAbs(tmp) {
		add(filepath.Join(tmp, "belay-"+uid))
	}
	add(filepath.Join(tempDir(), "belay-"+uid))
	return dirs
}

// MakeDir creates the runtime directory, mode 0700, and checks it; see
// [CheckDir].
func MakeDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%w: runtime directory %q is not an absolute path; set %s to one", belay.ErrBadRequest, dir, EnvDir)
	}
	// The parents belong to the system or to whoever set the variable; only
	// the last part is ours and must be private.
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("create runtime directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create runtime directory: %w", err)
	}
	return CheckDir(dir)
}

// CheckDir refuses a runtime directory that somebody else could have prepared
// or can look into: a symlink, another owner, any right for group or others.
// The error wraps [belay.ErrForbidden]; a directory that is not there is
// [fs.ErrNotExist].
func CheckDir(dir string) error {
	if err := checkPrivate(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return fmt.Errorf("runtime directory %s: %w (use another one with %s)", dir, err, EnvDir)
	}
	return nil
}

func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	uid, known := ownerOf(info)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: it is a symbolic link", belay.ErrForbidden)
	case !info.IsDir():
		return fmt.Errorf("%w: it is not a directory", belay.ErrForbidden)
	case known && uid != os.Getuid():
		return fmt.Errorf("%w: it belongs to uid %d, this is uid %d", belay.ErrForbidden, uid, os.Getuid())
	case known && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: others have access to it (mode %04o, want 0700)", belay.ErrForbidden, info.Mode().Perm())
	}
	return nil
}
