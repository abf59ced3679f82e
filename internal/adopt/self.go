package adopt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoSelf means that no path of this program is worth writing into a file.
var ErrNoSelf = errors.New("no lasting path to belay")

// Self returns the absolute path by which entries start this program. Editors
// have another PATH than shells, so a bare name would not do; and package
// managers keep a program in a folder of its version, so a path in PATH that
// leads to the same file is better than the file's own: it is still right
// after an update.
func Self(getenv func(string) string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoSelf, err)
	}
	return selfFrom(exe, getenv("PATH"))
}

func selfFrom(exe, path string) (string, error) {
	own, err := os.Stat(exe)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoSelf, err)
	}
	names := []string{"belay" + filepath.Ext(exe), "belay", filepath.Base(exe)}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, name := range names {
			candidate := filepath.Join(dir, name)
			if info, err := os.Stat(candidate); err == nil && os.SameFile(own, info) {
				return candidate, nil
			}
		}
	}
	if strings.Contains(filepath.ToSlash(exe), "/go-build") {
		return "", fmt.Errorf("%w: this one was built by \"go run\" and is gone soon; install belay first", ErrNoSelf)
	}
	return exe, nil
}
