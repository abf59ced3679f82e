package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// attempts bounds how often a plan is made anew because somebody else writes
// the file at the same time: an agent that is running saves its own now and
// then, not all the time.
const attempts = 5

// errStale is a plan that was made from a text which is no longer there.
var errStale = errors.New("the file was changed meanwhile")

// Commit writes what the plan says and returns the plan that was carried out:
// another one than p if the file was changed by somebody since. A plan without
// changes, or for a file that is left alone, writes nothing. [ErrChanged] when
// the file is changed faster than it can be read.
func (p *Plan) Commit(ctx context.Context) (*Plan, error) {
	for range attempts {
		if p.Blocked != "" || p.Changes() == 0 {
			return p, nil
		}
		err := p.write()
		if !errors.Is(err, errStale) {
			return p, err
		}
		if err := context.Cause(ctx); err != nil {
			return p, fmt.Errorf("%s: %w", p.Path, err)
		}
		if p, err = Open(ctx, p.Path, p.options); err != nil {
			return nil, err
		}
	}
	return p, fmt.Errorf("%s: %w (tried %d times); close the program that writes it and try again", p.Path, ErrChanged, attempts)
}

// write replaces the file as a whole, or changes nothing.
func (p *Plan) write() (err error) {
	dir := filepath.Dir(p.Real)
	f, err := os.CreateTemp(dir, ".belay-*.tmp") // 0600 until it has the other's mode
	if err != nil {
		return fmt.Errorf("%s: its folder cannot be written to: %w", p.Path, err)
	}
	temp := f.Name()
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(temp)
		}
	}()
	if err := p.fill(f); err != nil {
		return fmt.Errorf("%s: it could not be written, nothing was changed: %w", p.Path, err)
	}
	if hook := p.options.beforeRename; hook != nil {
		hook()
	}
	if err := p.fresh(); err != nil {
		return err
	}
	if err := os.Rename(temp, p.Real); err != nil {
		return fmt.Errorf("%s: it could not be replaced, nothing was changed: %w", p.Path, err)
	}
	_ = syncDir(dir) // the change is made; without this it may only not survive a power cut
	return nil
}

// fill writes the new text, durably, with the old file's mode and owner. The
// owner first: changing it takes bits off the mode.
func (p *Plan) fill(f *os.File) error {
	if _, err := f.Write(p.after); err != nil {
		return err
	}
	if err := keepOwner(f, p.before.info); err != nil {
		return err
	}
	if err := f.Chmod(p.before.info.Mode()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// fresh is errStale unless the path still leads to the file that was read, and
// that holds the same text.
func (p *Plan) fresh() error {
	now, err := take(p.Path)
	if err != nil {
		return err
	}
	if now.real != p.Real || !bytes.Equal(now.text, p.before.text) {
		return errStale
	}
	return nil
}
