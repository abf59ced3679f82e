package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// MeshOptions are the settings of a [Mesh].
type MeshOptions struct {
	Dirs    []string      // the runtime directories; required, see [Dirs]
	Timeout time.Duration // for a process to accept and greet; default [DefaultTimeout]
}

// Mesh is every Belay process of this user on this machine. It keeps nothing
// between calls and needs no Close. It implements [belay.Control]:
//
// Errors of single processes come as [*SocketError], joined, beside the
// results of all others.
type Mesh struct {
	dirs    []string
	timeout time.Duration
	only    []int // the processes to be asked; nil: all
}

var _ belay.Control = (*Mesh)(nil)

// NewMesh returns the Mesh of the processes in the directories.
func NewMesh(o MeshOptions) *Mesh {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	return &Mesh{dirs: o.Dirs, timeout: o.Timeout}
}

// Only is the Mesh of these processes of it alone.
func (m *Mesh) Only(pids ...int) *Mesh {
	return &Mesh{dirs: m.dirs, timeout: m.timeout, only: append([]int{}, pids...)}
}

// sockets are those to be asked.
func (m *Mesh) sockets() ([]string, error) {
	paths, err := sockets(m.dirs)
	if m.only != nil {
		paths = slices.DeleteFunc(paths, func(path string) bool { return !slices.Contains(m.only, socketPid(path)) })
	}
	return paths, err
}

// Process is one Belay process as it introduced itself.
type Process struct {
	Socket  string    `json:"socket"`
	Pid     int       `json:"pid"`
	Started time.Time `json:"started"`
	Version string    `json:"version,omitempty"`
	Command []string  `json:"command,omitempty"`
	Fronts  string    `json:"fronts,omitempty"`
}

func process(socket string, h hello) Process {
	return Process{Socket: socket, Pid: h.Pid, Started: h.Started, Version: h.Version, Command: h.Command, Fronts: h.Fronts}
}

// Processes lists who is there, the oldest first.
func (m *Mesh) Processes(ctx context.Context) ([]Process, error) {
	replies, err := m.askAll(ctx, &request{Op: opHello})
	var list []Process
	for _, r := range replies {
		list = append(list, r.from)
	}
	slices.SortFunc(list, func(a, b Process) int { return a.Started.Compare(b.Started) })
	return list, err
}

// reply is everything that one process answered.
type reply struct {
	from    Process
	answers []answer
	err     error // what it said about the request, not how it was reached
}

// askAll sends a request to every process at the same time. A reply that broke
// off is left out, and is an error.
func (m *Mesh) askAll(ctx context.Context, req *request) ([]reply, error) {
	paths, dirErr := m.sockets()
	replies := make([]*reply, len(paths))
	errs := make([]error, len(paths), len(paths)+1)
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, path := range paths {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r, err := m.ask(ctx, path, req, nil)
			if !errors.Is(err, errStale) {
				errs[i] = err
			}
			if err == nil {
				replies[i] = r
			}
		})
	}
	wg.Wait()
	var list []reply
	for _, r := range replies {
		if r != nil {
			list = append(list, *r)
		}
	}
	return list, errors.Join(append(errs, dirErr)...)
}

// maxParallel bounds how many processes are asked at the same time.
const maxParallel = 64

// ask sends a request to one process and collects its answers, or gives them
// to each, if that is not nil, as they come.
func (m *Mesh) ask(ctx context.Context, path string, req *request, each func(*answer)) (*reply, error) {
	w, h, err := open(ctx, path, m.timeout, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = w.conn.Close() })()
	r := &reply{from: process(path, h)}
	for {
		a, done, err := w.next(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return r, context.Cause(ctx)
		case err != nil:
			return r, &SocketError{Socket: path, Pid: h.Pid, Err: err}
		case done:
			return r, nil
		case a.Error != nil:
			r.err = a.Error.err()
		case a.Beat:
		case each != nil:
			each(&a)
		default:
			r.answers = append(r.answers, a)
		}
	}
}

// held is a run and where it is.
type held struct {
	belay.Info
	socket string
}

// collect lists matching runs of every process; Under and Limit are left to
// the caller.
func (m *Mesh) collect(ctx context.Context, f belay.Filter) ([]held, error) {
	f.Under, f.Limit = belay.RunID{}, 0
	replies, err := m.askAll(ctx, &request{Op: opList, Filter: f})
	errs := []error{err}
	var list []held
	for _, r := range replies {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("the Belay process %d: %w", r.from.Pid, r.err))
		}
		for _, a := range r.answers {
			for _, i := range a.Runs {
				if i.Pid == 0 {
					i.Pid = r.from.Pid
				}
				list = append(list, held{Info: i, socket: r.from.Socket})
			}
		}
	}
	slices.SortFunc(list, func(a, b held) int { return byAge(&a.Info, &b.Info) })
	return list, errors.Join(errs...)
}

// byAge orders runs, the oldest first. Ids alone tell the time to the
// millisecond only.
func byAge(a, b *belay.Info) int {
	return cmp.Or(a.Started.Compare(b.Started), bytes.Compare(a.ID[:], b.ID[:]))
}

// List implements [belay.Control]. Filter.Under reaches across processes.
func (m *Mesh) List(ctx context.Context, f belay.Filter) ([]belay.Info, error) {
	ask := f
	if !f.Under.IsZero() {
		ask = belay.Filter{Ended: true} // the way down may lead through any run
	}
	list, err := m.collect(ctx, ask)
	w := newForest(list)
	infos := make([]belay.Info, 0, len(list))
	for i := range list {
		if f.Match(&list[i].Info) && w.under(list[i].ID, f.Under) {
			infos = append(infos, list[i].Info)
		}
	}
	if f.Limit > 0 && len(infos) > f.Limit {
		infos = infos[:f.Limit]
	}
	return infos, err
}

// Get implements [belay.Control].
func (m *Mesh) Get(ctx context.Context, id belay.RunID) (belay.Detail, error) {
	replies, err := m.askAll(ctx, &request{Op: opGet, Run: id})
	errs := []error{fmt.Errorf("%w: %s", belay.ErrNotFound, id)}
	for _, r := range replies {
		for _, a := range r.answers {
			if a.Detail != nil {
				if a.Detail.Pid == 0 {
					a.Detail.Pid = r.from.Pid
				}
				return *a.Detail, nil
			}
		}
		if r.err != nil && !errors.Is(r.err, belay.ErrNotFound) {
			errs = append(errs, r.err)
		}
	}
	return belay.Detail{}, errors.Join(append(errs, err)...)
}

// Cancel implements [belay.Control]; see [Mesh.Stop].
func (m *Mesh) Cancel(ctx context.Context, req belay.CancelRequest) ([]belay.CancelResult, error) {
	return m.Stop(ctx, req, nil)
}

// Watch implements [belay.Control]. Processes that begin later are watched
// too, from within half a second of their beginning. Seq counts the events of
// this call. A process that cannot be watched is yielded as an error, once.
func (m *Mesh) Watch(ctx context.Context, f belay.Filter) iter.Seq2[belay.Event, error] {
	return func(yield func(belay.Event, error) bool) { m.watch(ctx, f, yield) }
}
