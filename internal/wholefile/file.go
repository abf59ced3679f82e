package wholefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNotDurable: the file was replaced, but a crash of the machine may bring
// back what was there before, for its folder could not be synced.
var ErrNotDurable = errors.New("the file is replaced, but a crash may bring the old one back")

// File is a text that will replace another file. Its methods are those of the
// temporary file until Commit or Discard.
type File struct {
	*os.File
	path string
	over bool // committed or discarded
}

// Create opens a file that will stand at path, in the same folder, which has to
// exist.
func Create(path string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".belay-*.tmp") // 0600
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path}, nil
}

// Commit puts the file in its place. Last, if there is one, is called when
// everything but the rename is done; its error is returned as it is. With any
// error but [ErrNotDurable] nothing was changed and nothing is left behind.
func (f *File) Commit(last func() error) error {
	defer f.Discard()
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if last != nil {
		if err := last(); err != nil {
			return err
		}
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return err
	}
	f.over = true
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return nil
}

// Discard closes and removes the file unless it was committed.
func (f *File) Discard() {
	if f.over {
		return
	}
	f.over = true
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// Write replaces the file at path by text, with mode 0600. See [File.Commit] for
// its errors.
func Write(path string, text []byte) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Commit(nil)
}
