package hook

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Times of looking whether the work is still alive.
const (
	firstLook   = 500 * time.Millisecond // how long a step waits for the first look
	pollFrom    = 100 * time.Millisecond
	pollTo      = time.Second
	pollLate    = 5 * time.Second // once the ladder's usual times are long over
	pollLateAt  = 30 * time.Second
	watchAtMost = 2 * time.Minute // from the last step
)

// Call is what hooks may know of the call that is stopped.
type Call struct {
	Run       belay.RunID
	Server    string
	Tool      string
	RequestID string // as the caller wrote it, without quotes
	Args      []byte // the raw JSON of the tool's arguments; nil: none

	// Observe says that nothing may be forced: terminate and kill are not run.
	Observe bool

	Log    *slog.Logger        // nil: nothing is logged
	Redact func(string) string // makes text fit for logs; nil: only a program's or host's name is shown
}

// Stop applies hooks to one call. Its methods fit the steps of a ladder and may
// be called concurrently. A nil Stop has no hooks.
type Stop struct {
	hooks *Hooks
	call  Call

	gone  chan struct{} // closed when alive said no after a yes
	baton chan struct{} // capacity 1: who holds it polls
	poke  chan struct{} // capacity 1: something was done; look soon

	first  sync.Once
	looked chan struct{} // closed when the first look has ended

	mu    sync.Mutex
	alive bool // it was seen alive
	over  bool // gone is closed
}

// For returns the Stop of one call; nil if there are no hooks. What c points to
// must not change.
func (h *Hooks) For(c Call) *Stop {
	if h == nil || h.Tell == nil && h.Terminate == nil && h.Kill == nil && h.Alive == nil {
		return nil
	}
	c.Args = checkArgs(c.Args)
	s := &Stop{hooks: h, call: c, looked: make(chan struct{}), gone: make(chan struct{}), baton: make(chan struct{}, 1), poke: make(chan struct{}, 1)}
	s.baton <- struct{}{}
	return s
}

// Has reports whether there is an action for the step.
func (s *Stop) Has(step Step) bool { return s != nil && s.hooks.action(step) != nil }

// Forceful reports whether a hook may be used as force: there is a terminate or
// kill, and observe mode does not forbid it.
func (s *Stop) Forceful() bool {
	return (s.Has(Terminate) || s.Has(Kill)) && !s.call.Observe
}

// Tell runs the tell hook. Before, it looks whether the work is alive, since
// only what was alive can be seen to end; therefore it is to be called even
// where there is no tell hook. The look holds the hook up for half a second at
// most; Tell returns when both have ended. It does not wait for an effect:
// [Stop.Watch] does.
func (s *Stop) Tell(ctx context.Context, c *belay.Cancellation) error {
	if s == nil {
		return nil
	}
	s.lookFirst(ctx, c)
	s.awaitLook(ctx)
	err := s.act(ctx, Tell, c)
	<-s.looked
	s.hurry()
	return err
}

// lookFirst starts the first look, once.
func (s *Stop) lookFirst(ctx context.Context, c *belay.Cancellation) {
	s.first.Do(func() {
		if !s.Has(Alive) {
			close(s.looked)
			return
		}
		go func() {
			defer close(s.looked)
			_, _, _ = s.Alive(ctx, c) // an error is in the log
		}()
	})
}

// awaitLook waits for the first look, for a moment: nobody is told or forced
// late because of a check that hangs.
func (s *Stop) awaitLook(ctx context.Context) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	select {
	case <-s.looked:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Terminate runs the terminate hook and then watches, as [Stop.Watch] does,
// unless somebody watches already: then it returns at once. So it does after one
// look when the hook failed, for the next step to be taken, and without a hook.
// In observe mode it is refused.
func (s *Stop) Terminate(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	return s.force(ctx, Terminate, c)
}

// Kill runs the kill hook, as [Stop.Terminate] does its.
func (s *Stop) Kill(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	return s.force(ctx, Kill, c)
}

func (s *Stop) force(ctx context.Context, step Step, c *belay.Cancellation) (*belay.Evidence, error) {
	switch {
	case !s.Has(step):
		return nil, nil
	case s.call.Observe:
		return nil, &belay.Restraint{Why: fmt.Sprintf("this server is told and watched, never forced: the %s hook was not run", step)}
	}
	s.lookFirst(ctx, c)
	defer func() { <-s.looked }()
	s.awaitLook(ctx)
	if err := s.act(ctx, step, c); err != nil {
		// It may have failed because an earlier step has done the work already.
		if alive, known, _ := s.Alive(ctx, c); known && !alive && s.ended() {
			return s.evidence(), nil
		}
		return nil, err
	}
	if !s.Has(Alive) {
		return nil, nil
	}
	s.hurry()
	select {
	case <-s.baton:
		defer func() { s.baton <- struct{}{} }()
		return s.poll(ctx, c), nil
	default: // whoever watches brings the evidence
		return nil, nil
	}
}

// hurry makes the watcher look soon.
func (s *Stop) hurry() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// Alive asks once whether the work is alive. known is false if the answer means
// neither, or there was none: err says why.
func (s *Stop) Alive(ctx context.Context, c *belay.Cancellation) (alive, known bool, err error) {
	if !s.Has(Alive) {
		return false, false, nil
	}
	code, err := s.run(ctx, Alive, c)
	if err != nil {
		return false, false, err
	}
	alive, known = s.hooks.Alive.check(code)
	if alive {
		s.mu.Lock()
		s.alive = true
		s.mu.Unlock()
	}
	return alive, known, nil
}

// Watch asks the alive hook again and again, after 100 ms, then up to a second
// apart, until it says that work is gone which it had found alive, and returns
// that as evidence, to one caller. It returns nil when ctx ends, when two
// minutes have passed since the last step, and at once without an alive hook.
func (s *Stop) Watch(ctx context.Context, c *belay.Cancellation) *belay.Evidence {
	if !s.Has(Alive) {
		return nil
	}
	s.hurry()
	select {
	case <-s.baton:
		defer func() { s.baton <- struct{}{} }()
		return s.poll(ctx, c)
	case <-s.gone:
	case <-ctx.Done():
	}
	return nil
}

func (s *Stop) poll(ctx context.Context, c *belay.Cancellation) *belay.Evidence {
	since, pause := time.Now(), pollFrom
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.gone:
			return nil
		case <-s.poke:
			since, pause = time.Now(), pollFrom
			timer.Reset(0)
			continue
		case <-timer.C:
		}
		alive, known, _ := s.Alive(ctx, c) // an error is in the log; the next look may do better
		if known && !alive && s.ended() {
			return s.evidence()
		}
		passed := time.Since(since)
		if passed > watchAtMost {
			return nil
		}
		timer.Reset(pause)
		pause = min(2*pause, pollTo)
		if passed > pollLateAt {
			pause = pollLate
		}
	}
}

// ended notes that alive says no. It is true once, and only if it had said yes.
func (s *Stop) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.alive || s.over {
		return false
	}
	s.over = true
	close(s.gone)
	return true
}

func (s *Stop) evidence() *belay.Evidence {
	return &belay.Evidence{
		Kind: belay.SeenHookGone, Scope: belay.ScopeHook, At: time.Now(),
		Detail: fmt.Sprintf("alive hook: %s found it alive after the Stop and says gone now", s.hooks.Alive.name(s.call.Redact)),
	}
}

// Plan says in a few words what the hooks would do, for --dry-run.
func (s *Stop) Plan() string {
	text := ""
	for _, step := range []Step{Tell, Terminate, Kill, Alive} {
		if !s.Has(step) {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += string(step) + " hook: " + s.hooks.action(step).name(s.call.Redact)
	}
	return text
}
