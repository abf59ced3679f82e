package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// DefaultTimeout is how long a process has to accept a connection and greet.
const DefaultTimeout = time.Second

// SocketError is a socket in a runtime directory that could not be talked to.
// It wraps [belay.ErrUnreachable], or [belay.ErrForbidden] for another user's,
// or the error that the process answered with.
type SocketError struct {
	Socket  string // its path
	Pid     int    // 0 if not known
	Foreign bool   // it is no Belay process of this user; no runs can be missing because of it
	Err     error
}

// Error is one line: what, where, and what to do.
func (e *SocketError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("%s: passed over: %v (remove it if it is a leftover)", e.Socket, e.Err)
	}
	if e.Pid > 0 {
		return fmt.Sprintf("the Belay process %d %v", e.Pid, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Socket, e.Err)
}

// Unwrap returns Err.
func (e *SocketError) Unwrap() error { return e.Err }

// problem is an error with a class, whose text reads well behind "the Belay
// process 7 …".
type problem struct {
	text  string
	class error
}

func (p *problem) Error() string { return p.text }
func (p *problem) Unwrap() error { return p.class }

func unreachable(format string, args ...any) error {
	return &problem{text: fmt.Sprintf(format, args...), class: belay.ErrUnreachable}
}

var (
	errTooSlow = unreachable("does not answer; see whether it is stopped or overloaded")
	errGone    = unreachable("went away before it had answered; its guardian ends what it had started")
)

// sockets lists what looks like a socket of ours in the directories. A
// directory that is not there has none; one that is not private is an error
// beside the others.
func sockets(dirs []string) (paths []string, err error) {
	var errs []error
	var seen []fs.FileInfo // one directory may have two names
	for _, dir := range dirs {
		switch err := CheckDir(dir); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		info, err := os.Stat(dir)
		if err != nil || slices.ContainsFunc(seen, func(i fs.FileInfo) bool { return os.SameFile(i, info) }) {
			continue
		}
		seen = append(seen, info)
		entries, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffix) {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths, errors.Join(errs...)
}

// errStale says that there is nobody and never will be; it reaches no user.
var errStale = errors.New("stale socket")

// open connects to a socket found by sockets and sends a request. The errors
// are errStale and *SocketError.
func open(ctx context.Context, path string, timeout time.Duration, req *request) (*wire, hello, error) {
	ctx, end := context.WithTimeoutCause(ctx, timeout, errTooSlow)
	defer end()
	w, h, err := greet(ctx, path)
	if err == nil {
		if err = w.send(req); err == nil {
			return w, h, nil
		}
		_ = w.conn.Close()
		if errors.Is(err, belay.ErrBadRequest) { // too large: our own mistake
			return nil, h, err
		}
		err = &SocketError{Socket: path, Pid: h.Pid, Err: errGone}
	}
	if refused(err) && removeStale(ctx, path, false) || errors.Is(err, fs.ErrNotExist) {
		return nil, h, errStale
	}
	return nil, h, asSocketError(path, err)
}

func asSocketError(path string, err error) error {
	if _, ok := errors.AsType[*SocketError](err); ok {
		return err
	}
	return &SocketError{Socket: path, Pid: socketPid(path), Err: unreachable("cannot be reached: %v", err)}
}

// greet connects and reads the greeting; ctx must have an end. Errors other
// than those of connecting are *SocketError.
func greet(ctx context.Context, path string) (*wire, hello, error) {
	foreign := func(err error) error {
		return &SocketError{Socket: path, Pid: socketPid(path), Foreign: true, Err: err}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, hello{}, fmt.Errorf("%w (%w)", unreachable("has no socket any more: %s", path), err)
	}
	if uid, known := ownerOf(info); known && uid != os.Getuid() {
		return nil, hello{}, foreign(&problem{fmt.Sprintf("it belongs to uid %d", uid), belay.ErrForbidden})
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return nil, hello{}, foreign(unreachable("it is not a socket"))
	}
	c, err := dial(ctx, path)
	if err != nil {
		if timedOut(err) || ctx.Err() != nil {
			err = &SocketError{Socket: path, Pid: socketPid(path), Err: ended(ctx)}
		} else if refused(err) {
			err = fmt.Errorf("%w (%w)", unreachable("listens no more"), err)
		}
		return nil, hello{}, err
	}
	w := newWire(c)
	h, err := w.greeted(ctx)
	if err == nil {
		return w, h, nil
	}
	_ = c.Close()
	if s, ok := errors.AsType[*SocketError](err); ok {
		s.Socket, s.Pid = path, socketPid(path)
	}
	return nil, h, err
}

// greeted checks who is at the other end and reads the greeting.
func (w *wire) greeted(ctx context.Context) (h hello, err error) {
	if _, err := checkPeer(w.conn); err != nil {
		return h, &SocketError{Foreign: true, Err: err}
	}
	within := DefaultTimeout
	if d, ok := ctx.Deadline(); ok {
		within = max(time.Until(d), time.Millisecond)
	}
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	switch err := w.receive(&h, maxHello, within); {
	case err == nil:
	case timedOut(err):
		return h, &SocketError{Err: ended(ctx)}
	case errors.Is(err, belay.ErrBadRequest):
		return h, &SocketError{Foreign: true, Err: unreachable("whoever listens there is no Belay process")}
	default: // closed while it began or ended
		return h, &SocketError{Err: errGone}
	}
	switch {
	case h.Error != nil:
		return h, &SocketError{Err: &problem{"refuses: " + h.Error.err().Error(), h.Error.err()}}
	case h.Belay == 0:
		return h, &SocketError{Foreign: true, Err: unreachable("whoever listens there is no Belay process")}
	case h.Belay != protocolVersion:
		return h, &SocketError{Err: unreachable("(version %q) speaks version %d of the local protocol, this program version %d; use the same Belay for both",
			belay.CleanReason(h.Version), h.Belay, protocolVersion)}
	}
	return h, nil
}

// ended is why ctx ended, or errTooSlow if its deadline came as a time-out of
// a connection.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errTooSlow
}

// next reads one answer. A silent server is an error; so is a closed
// connection before the line "done", which is reported as done == true without
// an error.
func (w *wire) next(ctx context.Context) (a answer, done bool, err error) {
	for {
		a = answer{}
		switch err := w.receive(&a, maxAnswer, silentFor); {
		case err == nil && a.Beat:
			return a, false, nil
		case err == nil:
			return a, a.Done, nil
		case ctx.Err() != nil:
			return a, false, context.Cause(ctx)
		case timedOut(err):
			return a, false, errTooSlow
		case errors.Is(err, belay.ErrBadRequest):
			return a, false, unreachable("gives an answer that cannot be understood: %v", err)
		case errors.Is(err, net.ErrClosed):
			return a, false, context.Cause(ctx)
		default:
			return a, false, errGone
		}
	}
}
