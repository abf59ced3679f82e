package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// A caller may say below which run a call hangs: in _meta, under
// io.github.belayhq/parent, or by a header. A turn of an agent that was
// registered by another door then stops its tool calls, too. Somebody means to
// stop the tree that the caller names: a call that ran outside of it would be a
// silent miss, and is refused.
//
// Such a call is a child of the named run alone. It is the session's all the
// same: the session's Stop and its end stop it (stopOutside), and it counts where
// the session is asked what is in flight. A list of what the tree has below the
// session's run does not show it.

// errParent is what a caller reads whose call names a run that cannot be its
// parent. Nobody learns from it whether the run exists.
var errParent = fmt.Errorf("%s (or the Belay-Parent header) must be the id of a run of your own that is in flight here: name the run that is to contain this call, or leave the name out", mcp.MetaParent)

// aboveLocked finds the run that the caller names as the call's parent; nil: it
// names none.
func (s *Session) aboveLocked(a *mcp.Arrival, said *mcp.Names) (*belay.Run, error) {
	text := a.Parent
	if said.Parents > 0 {
		inside := a.Text(said.Parent)
		if inside == "" || said.Parents > 1 {
			return nil, errParent
		}
		if text != "" && text != inside {
			return nil, fmt.Errorf("%w; the two name different runs", errParent)
		}
		text = inside
	}
	if text == "" {
		return nil, nil
	}
	id, err := belay.ParseRunID(text)
	if err != nil {
		return nil, errParent
	}
	run, err := s.tree.Run(id)
	if err != nil {
		return nil, errParent
	}
	info := run.Info()
	if info.Owner != s.run.Info().Owner || run.Cancellation() == nil && info.Over() {
		return nil, errParent
	}
	if run == s.run {
		return nil, nil // where it hangs anyway
	}
	return run, s.watchOutsideLocked()
}

// watchOutsideLocked makes Stops of the session reach the calls that do not hang
// below it.
func (s *Session) watchOutsideLocked() (err error) {
	if s.unwatch == nil {
		s.unwatch, err = s.tree.Attach(s.run.ID(), s.stopOutside)
	}
	return err
}

// stopOutside passes a Stop of the session on to its calls elsewhere.
func (s *Session) stopOutside(req belay.CancelRequest) {
	s.mu.Lock()
	runs := s.outsideLocked()
	s.mu.Unlock()
	if len(runs) == 0 {
		return
	}
	req.Filter = belay.Filter{IDs: make([]belay.RunID, 0, len(runs))}
	for run := range runs {
		req.Filter.IDs = append(req.Filter.IDs, run.ID())
	}
	if _, err := s.tree.Cancel(context.Background(), req); err != nil { //nolint:contextcheck // it waits for nothing
		s.log.Error("the calls of a session that hang below other runs could not be stopped", "error", err)
	}
}

// outsideLocked are the runs of the session that do not hang below its own and
// may not be over.
func (s *Session) outsideLocked() map[*belay.Run]struct{} {
	if s.unwatch == nil {
		return nil // there was never one
	}
	runs := make(map[*belay.Run]struct{})
	add := func(c *call) {
		if c != nil && c.run != nil && c.outside() {
			runs[c.run] = struct{}{}
		}
	}
	for _, c := range s.calls {
		add(c)
	}
	for _, u := range s.all {
		for _, c := range u.calls { // stopped ones included
			add(c)
		}
	}
	for _, t := range s.tasks {
		add(t.call)
	}
	for _, r := range s.rounds.byKey {
		add(r.of)
	}
	return runs
}

// outside reports whether the call's run does not hang below the session's.
func (c *call) outside() bool {
	return c.names != nil && (c.names.above != nil || !c.names.elsewhere.IsZero())
}

// registerStopped makes a run of a call whose parent is stopped already: it hangs
// there, and is stopped before it starts, as if it had come a moment earlier. An
// error that says something else is returned.
func (c *call) registerStopped(spec *belay.Spec, err error, before *stopBefore) (*belay.Run, error) {
	cause, ok := errors.AsType[*belay.Cancellation](err)
	switch {
	case errors.Is(err, belay.ErrEnded) && c.names.placed: // a moment ago
		c.names.above, spec.Parent = nil, c.s.run
		return c.s.tree.Register(*spec)
	case errors.Is(err, belay.ErrEnded):
		return nil, errParent
	case !ok || c.names.above == nil:
		return nil, err
	}
	spec.ParentID, spec.Parent, spec.Queued = c.names.above.ID(), nil, true
	if !before.is() {
		before.cause = belowStopped(cause, spec.ParentID)
	}
	return c.s.tree.Register(*spec)
}
