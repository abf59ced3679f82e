package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/belayhq/belay"
)

// EnvTokenFile names the file with the local token, instead of the user's own.
const EnvTokenFile = "BELAY_TOKEN_FILE" //nolint:gosec // a name

// maxTokenFile is more than any token file has.
const maxTokenFile = 256

// ErrTokenFile: the file with the local token cannot be trusted: somebody else
// may have read or written it. The message says what to do.
var ErrTokenFile = fmt.Errorf("the file with the local token: %w", belay.ErrForbidden)

// EnvStateDir moves everything of Belay's that outlives a process, as one.
const EnvStateDir = "BELAY_STATE_DIR"

// LocalTokenPath is where this user's token lies: $BELAY_TOKEN_FILE, else
// "local-token" in $BELAY_STATE_DIR, else in Belay's folder of the user's
// configuration directory, which outlives a login, else in runtimeDir (package
// local's), for a user without a home. It makes and checks nothing.
func LocalTokenPath(getenv func(string) string, runtimeDir string) string {
	return localTokenPath(runtime.GOOS, getenv, runtimeDir)
}

func localTokenPath(system string, getenv func(string) string, runtimeDir string) string {
	const name = "local-token"
	if file := getenv(EnvTokenFile); file != "" {
		return file
	}
	if dir := getenv(EnvStateDir); filepath.IsAbs(dir) {
		return filepath.Join(dir, name)
	}
	if dir := configDir(system, getenv); dir != "" {
		return filepath.Join(dir, "belay", name)
	}
	return filepath.Join(runtimeDir, name)
}

// configDir is what [os.UserConfigDir] returns, for any environment.
func configDir(system string, getenv func(string) string) string {
	if system == "windows" {
		return getenv("AppData")
	}
	home := getenv("HOME")
	if system == "darwin" {
		if filepath.IsAbs(home) {
			return filepath.Join(home, "Library", "Application Support")
		}
		return ""
	}
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if filepath.IsAbs(home) {
		return filepath.Join(home, ".config")
	}
	return ""
}

// LocalToken reads this user's token, and makes it where there is none yet.
// Several processes may do this at once: all get the same token, and a file
// that is there is whole. Errors wrap [ErrTokenFile] when others have access.
func LocalToken(path string) (string, error) {
	token, err := ReadLocalToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := makeLocalToken(path); err != nil {
		return "", fmt.Errorf("make the local token: %w (another place can be named with %s)", err, EnvTokenFile)
	}
	return ReadLocalToken(path)
}

// ReadLocalToken reads the token and makes nothing, for a client. No file is
// [fs.ErrNotExist].
func ReadLocalToken(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: %q is not an absolute path", ErrTokenFile, path)
	}
	if err := checkFolder(filepath.Dir(path)); err != nil {
		return "", err
	}
	// Not through a symlink, and before opening: opening a FIFO would wait.
	named, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if err := checkToken(path, named); err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// What was opened may be something else by now.
	opened, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !os.SameFile(named, opened) {
		return "", fmt.Errorf("%w: %s was replaced while it was read; try again", ErrTokenFile, path)
	}
	if err := checkToken(path, opened); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return "", err
	}
	return tokenIn(path, string(text))
}

// tokenIn is the token of a file's content: it, and at most a line's end.
func tokenIn(path, text string) (string, error) {
	for _, end := range []string{"\n", "\r"} {
		if n := len(text); n > 0 && text[n-1:] == end {
			text = text[:n-1]
		}
	}
	if !wellFormed(text) {
		return "", fmt.Errorf("%w: %s does not hold a token that Belay made; remove it, and the next start makes a new one", ErrTokenFile, path)
	}
	return text, nil
}

// checkToken refuses what somebody else could have written or read.
func checkToken(path string, info fs.FileInfo) error {
	uid, known := ownerOf(info)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a plain file", ErrTokenFile, path)
	case known && uid != os.Getuid():
		return fmt.Errorf("%w: %s belongs to uid %d, this is uid %d", ErrTokenFile, path, uid, os.Getuid())
	case known && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: others have access to %s (mode %04o, want 0600); who can have read it can stop everything: remove it, and the next start makes a new one",
			ErrTokenFile, path, info.Mode().Perm())
	default:
		return nil
	}
}

// checkFolder refuses a folder in which anybody could put files. One that the
// user's group can write to is fine, as a umask of 002 makes them: what is put
// there has another owner, and checkToken refuses it. It may be reached through
// a symlink: people keep their configuration elsewhere.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	uid, known := ownerOf(info)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is not a folder", ErrTokenFile, dir)
	case known && uid != os.Getuid() && uid != 0:
		return fmt.Errorf("%w: its folder %s belongs to uid %d, this is uid %d; name another place with %s", ErrTokenFile, dir, uid, os.Getuid(), EnvTokenFile)
	case known && info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%w: everybody can write to its folder %s (mode %04o); chmod o-w it", ErrTokenFile, dir, info.Mode().Perm())
	default:
		return nil
	}
}

// makeLocalToken writes a new token. The file appears under its name only when
// it is whole, and by a link, which never replaces: of several first starts one
// wins, and the others find its token.
func makeLocalToken(path string) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkFolder(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".local-token-*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(f.Name()); err == nil {
			err = gone // a second name for a secret is not left behind in silence
		}
	}()
	text, _ := NewToken()
	_, err = f.WriteString(text + "\n")
	if err == nil {
		err = f.Sync() // a crash must not leave an empty file under the name
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
