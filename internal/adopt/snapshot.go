package adopt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFile bounds a file. Claude Code keeps all its state in one, which grows to
// some megabytes.
const maxFile = 32 << 20

// snapshot is a file at one moment.
type snapshot struct {
	real string // behind symbolic links, absolute
	text []byte
	info fs.FileInfo
}

// take reads the file behind a path. Errors name the path.
func take(path string) (snapshot, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return snapshot{}, pathError(path, err)
	}
	if target, err = filepath.Abs(target); err != nil {
		return snapshot{}, pathError(path, err)
	}
	info, err := os.Stat(target) // before opening: a named pipe would wait for a writer
	if err != nil {
		return snapshot{}, pathError(path, err)
	}
	switch {
	case info.IsDir():
		return snapshot{}, fmt.Errorf("%s: %w: it is a folder; name the file in it", path, ErrFile)
	case !info.Mode().IsRegular():
		return snapshot{}, fmt.Errorf("%s: %w: it is not a regular file", path, ErrFile)
	}
	text, err := readAll(target, maxFile)
	if err != nil {
		return snapshot{}, pathError(path, err)
	}
	return snapshot{real: target, text: text, info: info}, nil
}

// pathError puts the path that was asked for before what is wrong with it.
func pathError(path string, err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// readAll reads a file up to a bound.
func readAll(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%w: it is larger than %d MiB", ErrFile, limit>>20)
	}
	return text, err
}
