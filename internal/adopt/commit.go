package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/belayhq/belay/internal/wholefile"
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
func (p *Plan) write() error {
	f, err := wholefile.Create(p.Real)
	if err != nil {
		return fmt.Errorf("%s: its folder cannot be written to: %w", p.Path, err)
	}
	defer f.Discard()
	if err := p.fill(f.File); err != nil {
		return fmt.Errorf("%s: it could not be written, nothing was changed: %w", p.Path, err)
	}
	var look error
	err = f.Commit(func() error { look = p.fresh(); return look })
	switch {
	case err == nil, errors.Is(err, wholefile.ErrNotDurable): // the change is made
		return nil
	case look != nil:
		return look
	}
	return fmt.Errorf("%s: it could not be replaced, nothing was changed: %w", p.Path, err)
}

// fill writes the new text, with the old file's mode and owner. The owner first:
// changing it takes bits off the mode.
func (p *Plan) fill(f *os.File) error {
	if _, err := f.Write(p.after); err != nil {
		return err
	}
	if err := keepOwner(f, p.before.info); err != nil {
		return err
	}
	return f.Chmod(p.before.info.Mode())
}

// fresh is errStale unless the path still leads to the file that was read, and
// that holds the same text.
func (p *Plan) fresh() error {
	if hook := p.options.beforeRename; hook != nil {
		hook()
	}
	now, err := take(p.Path)
	if err != nil {
		return err
	}
	if now.real != p.Real || !bytes.Equal(now.text, p.before.text) {
		return errStale
	}
	return nil
}
