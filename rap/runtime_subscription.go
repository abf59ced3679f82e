package rap

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/belayhq/belay"
)

// KindSubscription is the kind of a live subscription's run: it outlives the call
// that began it, and is stopped like any other.
const KindSubscription = belay.KindTask

// Subscription is a call that goes on sending events after its result (RAP-65).
// The exported fields never change.
type Subscription struct {
	ID     string  // the id of the call that began it
	Thread string  // its group id
	Server string  // who sends the events
	Tool   string  // what was called
	CallID *string // as it was given with the call

	th     *Thread
	server *server // nil: it has left the configuration
	key    tokenKey
	since  time.Time
	run    *belay.Run
	rate   meter
	told   chan struct{} // closed when a Stop has been handed to all deliveries

	events *Events    // nil: the thread's
	parent *belay.Run // nil: the thread's

	// The fields below are guarded by th.mu.
	data    json.RawMessage // see Thread.Keep
	stored  bool            // it is in the store
	staying bool            // the program ends, the subscription does not
	over    bool
	active  bool // an event came after the Stop
}

// Run is the run of the subscription: it is stopped by its cancellation.
func (s *Subscription) Run() *belay.Run { return s.run }

// Kept is what [Thread.Keep] has put there; nil: nothing.
func (s *Subscription) Kept() json.RawMessage {
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	return s.data
}

// Since is when it began.
func (s *Subscription) Since() time.Time { return s.since }

// refusedText is added to a result whose subscription was refused (RAP-79).
const refusedText = "\n(Belay has ended this subscription: %d are live in this thread already. Cancel one of them first.)"

// subscribeLocked makes a subscription of a call that has just got its result. It
// returns the result as the caller is to get it.
func (c *Pending) subscribeLocked(r *ToolResult) *ToolResult {
	th := c.th
	s := &Subscription{
		ID: c.inv.ID, Thread: th.id, Server: c.server.Name, Tool: c.tool, CallID: c.o.CallID,
		th: th, server: c.server, key: c.key, since: time.Now(), told: make(chan struct{}),
	}
	if e := c.o.Events; e != nil && e.Subscription != nil {
		s.events = e
	}
	if c.o.Keep {
		s.parent = c.o.Parent
	}
	var err error
	if len(th.subs) >= MaxSubscriptions {
		err = fmt.Errorf("%w: %d are live", belay.ErrTooMany, len(th.subs))
	} else {
		err = s.startLocked()
	}
	if err != nil {
		th.rt.log.Warn("a subscription was refused", "thread", th.id, "tool", c.tool, "error", err)
		c.tellAll(nil)
		own := *r
		own.Subscription = false
		note := fmt.Sprintf(refusedText, len(th.subs))
		if own.Text += note; len(own.Content) > 0 {
			own.Content = append(append([]Item{}, own.Content...), Item{Type: ItemText, Text: note})
		}
		return &own
	}
	if th.o.Durable && th.rt.o.Store != nil {
		s.storeLocked()
	}
	return r
}

// startLocked makes the subscription a run and known by its callback URL.
func (s *Subscription) startLocked() error {
	th, rt := s.th, s.th.rt
	spec := belay.Spec{
		Kind: KindSubscription, Name: s.Tool, Server: s.Server, Owner: th.o.Owner, Address: th.id,
		Labels: labelled(map[string]string{"subscription": s.ID}), Parent: th.o.Parent,
		Stopper: s, OnCancel: s.stopped,
	}
	if s.parent != nil {
		spec.Parent = s.parent
	}
	if s.server != nil {
		spec.Ladder.ConfirmAfter = s.server.ConfirmAfter
	}
	var err error
	if s.run, err = rt.o.Tree.Register(spec); err != nil {
		return err
	}
	rt.mu.Lock()
	rt.subs[s.key] = s
	rt.mu.Unlock()
	th.subs[s.ID] = s
	return nil
}

// takeLocked takes an event. Those of a subscription that is over are discarded
// (RAP-78). It is false when too much waits already.
func (s *Subscription) takeLocked(e *SubscriptionEvent) bool {
	if s.over {
		switch {
		case s.run.Cancellation() == nil:
		case e.Final:
			s.run.Observe(belay.Evidence{Kind: belay.SeenResult, Detail: "the tool server sent the final event after the Stop"})
		case !s.active:
			s.active = true
			s.run.Observe(belay.Evidence{Kind: belay.SeenStillActive, Detail: "an event came after the Stop"})
		}
		return true
	}
	take := s.th.eventsLocked().Subscription
	if s.events != nil {
		take = s.events.Subscription
	}
	if take == nil {
		s.th.rt.log.Info("an event of a subscription was dropped: nobody takes it", "thread", s.Thread, "tool", s.Tool)
	} else if !s.th.enqueueLocked(func() { take(s, e) }) {
		return false
	}
	if e.Final && s.run.Finish(belay.Completed) {
		s.endLocked()
	}
	return true
}

// endLocked stops tracking (RAP-74). Late events are known for a while all the
// same, by what is remembered of the call.
func (s *Subscription) endLocked() {
	if s.over {
		return
	}
	s.over = true
	delete(s.th.subs, s.ID)
	if s.stored && !s.staying {
		s.stored = false
		if err := s.th.rt.o.Store.Delete(hex.EncodeToString(s.key[:])); err != nil {
			s.th.rt.log.Error("the end of a subscription could not be written down", "error", err)
		}
	}
	s.th.rt.retireSubscription(s)
}

// retireSubscription keeps the callback URL of an ended subscription for a while.
func (rt *Runtime) retireSubscription(s *Subscription) {
	key := s.key
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return
	}
	time.AfterFunc(KeepCallbacks, func() {
		rt.mu.Lock()
		defer rt.mu.Unlock()
		delete(rt.subs, key)
	})
}

// stopped is the run's OnCancel. The end of the program is not that of a durable
// subscription.
func (s *Subscription) stopped(_ *belay.Run, why *belay.Cancellation) {
	ending := s.th.rt.ending(why)
	s.th.mu.Lock()
	defer s.th.mu.Unlock()
	if ending && s.stored {
		s.staying, s.th.stays = true, true
	}
	s.endLocked()
	s.th.rt.owe(s.told)
}

// ending reports whether something was stopped because the program ends.
func (rt *Runtime) ending(why *belay.Cancellation) bool {
	for range maxAbove {
		switch {
		case why == nil:
			return false
		case why.Cause == belay.CauseShutdown:
			return true
		case why.Cause != belay.CauseParent:
			return false
		}
		above, err := rt.o.Tree.Run(why.Origin)
		if err != nil {
			return false
		}
		why = above.Cancellation()
	}
	return false
}

// maxAbove bounds how far up the reason of a Stop is looked for.
const maxAbove = 16

// errStays is why nobody is told that a durable subscription's run has ended with
// the program.
var errStays = errors.New("the subscription goes on: it is taken up again when Belay is started")

// Tell implements [belay.Stopper]: all servers are told, as for a call.
func (s *Subscription) Tell(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	s.th.mu.Lock()
	staying := s.staying
	s.th.mu.Unlock()
	if staying {
		s.th.rt.handedOver(s.told)
		return nil, errStays
	}
	t := s.th.rt.tellAll(s.server, CancelNotice{ThreadID: s.Thread, ToolCallID: s.ID}, s.run.Observe)
	s.th.rt.handedOver(s.told)
	return nil, t.wait(ctx)
}

// Keep stores data with a live subscription, for whoever takes its events after a
// restart. Without a durable thread and a store it does nothing.
func (th *Thread) Keep(id string, data json.RawMessage) error {
	th.mu.Lock()
	defer th.mu.Unlock()
	s := th.subs[id]
	if s == nil {
		return fmt.Errorf("%w: %.64q", ErrNoSubscription, id)
	}
	s.data = data
	if th.o.Durable && th.rt.o.Store != nil {
		s.storeLocked()
	}
	return nil
}

// storeLocked writes the subscription down, before its result is acknowledged.
func (s *Subscription) storeLocked() {
	err := s.th.rt.o.Store.Put(Stored{
		Key: hex.EncodeToString(s.key[:]), ID: s.ID, Thread: s.Thread, Server: s.Server, Tool: s.Tool,
		CallID: s.CallID, Owner: s.th.o.Owner, Since: s.since, Data: s.data,
	})
	if s.stored = s.stored || err == nil; err != nil {
		s.th.rt.log.Error("a subscription could not be written down: it ends with this program", "thread", s.Thread, "error", err)
	}
}

// restore makes the subscriptions of the store live again.
func (rt *Runtime) restore() error {
	if rt.o.Store == nil {
		return nil
	}
	list, err := rt.o.Store.Load()
	if err != nil {
		return fmt.Errorf("live subscriptions: %w", err)
	}
	for i := range list {
		if err := rt.restoreOne(&list[i]); err != nil {
			rt.log.Error("a live subscription could not be taken up again", "thread", list[i].Thread, "error", err)
		}
	}
	return nil
}

func (rt *Runtime) restoreOne(o *Stored) error {
	s := &Subscription{
		ID: o.ID, Thread: o.Thread, Server: o.Server, Tool: o.Tool, CallID: o.CallID, data: o.Data,
		since: o.Since, told: make(chan struct{}), stored: true,
	}
	if n, err := hex.Decode(s.key[:], []byte(o.Key)); err != nil || n != len(s.key) {
		return fmt.Errorf("%w: the key is no digest", ErrMalformed)
	}
	if err := errors.Join(CheckID(o.ID), CheckID(o.Thread)); err != nil {
		return err
	}
	th, _, err := rt.thread(o.Thread, nil)
	if err != nil {
		return err
	}
	rt.mu.Lock()
	s.server = rt.servers[o.Server]
	rt.mu.Unlock()
	th.mu.Lock()
	defer th.mu.Unlock()
	s.th = th
	if th.left && th.o.Owner == "" {
		th.o.Owner = o.Owner
	}
	return s.startLocked()
}

// Restored are the subscriptions of threads that a restart has left and nobody
// has opened since.
func (rt *Runtime) Restored() []*Subscription {
	rt.mu.Lock()
	all := maps.Clone(rt.subs)
	rt.mu.Unlock()
	var list []*Subscription
	for _, s := range all {
		s.th.mu.Lock()
		if s.th.left && !s.over {
			list = append(list, s)
		}
		s.th.mu.Unlock()
	}
	return list
}
