package rap

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Relay offers a tool server of a [Runtime] to other runtimes: a [Toolset] for a
// [Handler], which answers them (RAP-91). Upstream a call has the run's id in place
// of the caller's, a callback URL of the Runtime's, and a group id that is told
// from other callers' by a tag; what comes back is mapped to the call it is for. A
// Stop by the runtime itself goes on to every tool server; one by anybody else is
// answered at once (RAP-92). Safe for concurrent use.
type Relay struct {
	rt     *Runtime
	server string

	mu      sync.Mutex // guards the fields below
	threads map[string]*relayed
}

// relayed is a thread that calls of one caller's group share.
type relayed struct {
	*Thread
	users int
}

var (
	_ Toolset      = (*Relay)(nil)
	_ ThreadCloser = (*Relay)(nil)
)

// NewRelay returns the toolset of a server of the runtime, which need not be there
// yet.
func NewRelay(rt *Runtime, server string) *Relay {
	return &Relay{rt: rt, server: server, threads: map[string]*relayed{}}
}

// relayProof is longer than a call's ladder can take.
const relayProof = 3 * time.Minute

// Manifest implements [Toolset]: the server is asked each time, so that keeping it is
// the runtime's affair (RAP-50).
func (r *Relay) Manifest(ctx context.Context, _ string) (*Manifest, error) {
	s, err := r.upstream()
	if err != nil {
		return nil, err
	}
	m, err := r.rt.manifest(ctx, s)
	if err != nil {
		return nil, err
	}
	own := *m // of which the Handler fills in its endpoint
	return &own, nil
}

func (r *Relay) upstream() (*server, error) {
	r.rt.mu.Lock()
	defer r.rt.mu.Unlock()
	if s := r.rt.servers[r.server]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: tool server %q is not served any more", belay.ErrNotFound, r.server)
}

// Prepare implements [Toolset].
func (r *Relay) Prepare(ctx context.Context, j *Job) (Func, error) {
	m, err := r.known(ctx, j.Operation())
	if err != nil {
		return nil, err
	}
	if m.Tool(j.Operation()) == nil {
		return nil, fmt.Errorf("%w: there is no tool %q here; ask for the list of tools again", ErrArguments, j.Operation())
	}
	return func(ctx context.Context, j *Job) (Result, error) { return r.call(ctx, j, m) }, nil
}

// known is the server's last manifest; one without the tool is asked for again.
func (r *Relay) known(ctx context.Context, tool string) (*Manifest, error) {
	s, err := r.upstream()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	m := s.cached
	s.mu.Unlock()
	if m != nil && m.Tool(tool) != nil {
		return m, nil
	}
	return r.rt.manifest(ctx, s)
}

// call makes the call upstream, below the job's run.
func (r *Relay) call(ctx context.Context, j *Job, m *Manifest) (Result, error) {
	th, err := r.enter(j, m)
	if err != nil {
		return Result{}, err
	}
	defer r.leave(j)
	events := make(chan *SubscriptionEvent, maxQueue)
	c, err := th.Invoke(CallOptions{
		Tool: j.Operation(), Arguments: j.Arguments(), CallID: j.inv.CallID, Owner: j.Owner(), Parent: j.Run(), Keep: true,
		Events: relayEvents(j, events), Seen: j.Run().Observe,
		Late: func(late *ToolResult) {
			if !Failed(late) {
				j.Partial(partialText(late))
			}
		},
	})
	if err != nil {
		return Result{}, err
	}
	<-c.Done() // a Stop of the job stops the call below it, too
	result, err := c.Result()
	switch {
	case ctx.Err() != nil:
		return Result{}, r.stopped(ctx, j, c.Run())
	case err != nil:
		return Result{}, err
	case result.Subscription:
		return r.follow(ctx, j, th, c, result, events)
	}
	return Result{Text: result.Text, Content: result.Content, DisplayAs: result.DisplayAs}, nil
}

// relayEvents maps what the tool server says to the job's own messages.
func relayEvents(j *Job, events chan<- *SubscriptionEvent) *Events {
	return &Events{
		OAuth: func(ctx context.Context, c *Pending, m *OAuth) {
			_ = j.Authorize(ctx, m.AuthURL, func(ctx context.Context) error {
				select {
				case <-c.Done():
				case <-ctx.Done():
				}
				return nil
			})
		},
		Choice: func(ctx context.Context, _ *Pending, m *UserChoice) (int, error) {
			return j.Choose(ctx, m.Prompt, m.Choices, m.Default)
		},
		Subscription: func(_ *Subscription, e *SubscriptionEvent) {
			select {
			case events <- e:
			default: // the runtime takes them more slowly than they come
				j.h.log.Warn("an event of a subscription was dropped: the runtime does not take them", "run", j.Run().ID())
			}
		},
		View: func(_ string, v *ViewUpdate) { _ = j.View(context.Background(), v.ViewType, v.Content) },
	}
}

// follow passes the events of a subscription on until the last one.
func (r *Relay) follow(ctx context.Context, j *Job, th *Thread, c *Pending, result *ToolResult, events <-chan *SubscriptionEvent) (Result, error) {
	if err := r.subscribe(ctx, j, th, c, partialText(result)); err != nil {
		_ = th.CancelSubscription(c.ID(), belay.Cancellation{Cause: belay.CausePeer, Reason: "the runtime has not taken the subscription"})
		return Result{}, err
	}
	for {
		select {
		case e := <-events:
			if e.Final {
				return Result{Text: e.Text}, nil
			}
			if err := j.Event(ctx, e.Text, e.Associative); err != nil && ctx.Err() == nil {
				return Result{}, err
			}
		case <-ctx.Done():
			return Result{}, fmt.Errorf("%w: %w", ErrUnproven, context.Cause(ctx))
		}
	}
}

// subscribe tells the runtime of the subscription. What the next program needs to
// pass its events on is written down before: the runtime may count on them from the
// moment it hears of it. If this program ends while the runtime is told, its answer
// decides whether the subscription goes on, so it is waited for a while.
func (r *Relay) subscribe(ctx context.Context, j *Job, th *Thread, c *Pending, text string) (err error) {
	answered := make(chan struct{})
	defer close(answered)
	tell, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		if r.rt.ending(j.run.Cancellation()) {
			timer := time.NewTimer(j.h.o.PartialWait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-answered:
			}
		}
		end(context.Cause(ctx))
	})()
	data, err := json.Marshal(relayKeep{Callback: j.inv.CallbackURL, Group: j.inv.GroupID, ID: j.inv.ID})
	if err == nil && th.Keep(c.ID(), data) == nil && r.rt.o.Store != nil {
		j.mu.Lock()
		j.kept = func(why *belay.Cancellation) bool {
			if !r.rt.ending(why) {
				return false
			}
			<-answered
			return err == nil
		}
		j.mu.Unlock()
	}
	err = j.subscribe(tell, text, j.begin)
	return err
}

// relayKeep is what has to be known of a subscription to pass its events on after a
// restart.
type relayKeep struct {
	Callback string `json:"callback_url"`
	Group    string `json:"group_id"`
	ID       string `json:"id"`
}

// stopped waits for the receipt of the call below, and says what it proves. A result
// that has ended the call is on it, and may not have come by its own way yet.
func (r *Relay) stopped(ctx context.Context, j *Job, run *belay.Run) error {
	wait, end := context.WithTimeoutCause(context.WithoutCancel(ctx), relayProof, errNoVerdict)
	defer end()
	defer context.AfterFunc(r.rt.life, end)()
	receipt, err := run.Wait(wait)
	if receipt != nil && receipt.Partial != "" {
		j.Partial(receipt.Partial)
	}
	if err != nil || receipt == nil || receipt.Verdict != belay.Confirmed {
		return fmt.Errorf("%w: %w", ErrUnproven, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

var errNoVerdict = errors.New("there was no verdict in time")

// enter takes the thread of a job's group, and opens it if nobody else has.
func (r *Relay) enter(j *Job, m *Manifest) (*Thread, error) {
	id := tagged(j.Caller(), j.Thread())
	r.mu.Lock()
	defer r.mu.Unlock()
	th := r.threads[id]
	if th == nil {
		ancestors := j.Ancestors()
		for i := range ancestors {
			ancestors[i] = tagged(j.Caller(), ancestors[i])
		}
		opened, err := r.rt.Open(ThreadOptions{ID: id, Ancestors: ancestors, UserID: j.User(), Owner: j.Owner(), Servers: []string{r.server}, Durable: true})
		if err != nil {
			return nil, err
		}
		th = &relayed{Thread: opened}
		r.threads[id] = th
	}
	s, err := r.upstream()
	if err != nil {
		return nil, err
	}
	t := &loadedTools{manifests: map[string]*Manifest{s.Name: m}, tools: make(map[string]tooled, 1)}
	t.tools[j.Operation()] = tooled{s, m.Tool(j.Operation())}
	th.learn(t)
	th.users++
	return th.Thread, nil
}

// learn adds to the tools of a thread.
func (th *Thread) learn(t *loadedTools) {
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.tools != nil {
		for name, at := range th.tools.tools {
			if _, there := t.tools[name]; !there {
				t.tools[name] = at
			}
		}
	}
	th.tools = t
}

// leave gives the thread back. One that nobody uses is forgotten; the server is not
// told, since for the runtime it goes on.
func (r *Relay) leave(j *Job) {
	id := tagged(j.Caller(), j.Thread())
	r.mu.Lock()
	defer r.mu.Unlock()
	th := r.threads[id]
	if th == nil {
		return
	}
	if th.users--; th.users == 0 && th.forget() {
		delete(r.threads, id)
	}
}

// forget lets go of a thread in which nothing is live.
func (th *Thread) forget() bool {
	th.mu.Lock()
	idle := len(th.calls) == 0 && len(th.subs) == 0
	if idle {
		th.closed = true
	}
	th.mu.Unlock()
	if idle {
		th.rt.mu.Lock()
		defer th.rt.mu.Unlock()
		if th.rt.threads[th.id] == th {
			delete(th.rt.threads, th.id)
		}
	}
	return idle
}

// CloseThread implements [ThreadCloser]: the thread's calls were stopped before; the
// tool servers are told (RAP-87).
func (r *Relay) CloseThread(_ context.Context, caller, thread string) {
	id := tagged(caller, thread)
	r.mu.Lock()
	th := r.threads[id]
	delete(r.threads, id)
	r.mu.Unlock()
	if th != nil {
		th.Close(belay.Cancellation{Cause: belay.CauseParent, Via: "rap", Reason: "the thread was closed"})
		return
	}
	r.rt.mu.Lock()
	left := r.rt.threads[id]
	r.rt.mu.Unlock()
	if left != nil { // its subscriptions have outlived a restart
		left.Close(belay.Cancellation{Cause: belay.CauseParent, Via: "rap", Reason: "the thread was closed"})
		return
	}
	if err := r.rt.notify.CloseThread(CloseNotice{ThreadID: id}, nil); err != nil {
		r.rt.log.Debug("the end of a thread could not be told", "error", err)
	}
}

// Migrate has the server move a session's state, and returns its refusal as it is
// ([MigrateError]). One that needs no migration is [ErrNoMigration] (RAP-89).
func (r *Relay) Migrate(ctx context.Context, caller string, m Migration) error {
	s, err := r.upstream()
	if err != nil {
		return err
	}
	known, err := r.known(ctx, "")
	if err != nil {
		return err
	}
	if !known.NeedsMigration {
		return ErrNoMigration
	}
	m.SessionID = tagged(caller, m.SessionID)
	return r.rt.migrate(ctx, s, m)
}

// tagged tells the group ids of several callers apart towards one tool server; the
// same caller's id is always the same.
func tagged(caller, group string) string {
	sum := sha256.Sum256([]byte(caller))
	tag := base32.HexEncoding.EncodeToString(sum[:5]) + "."
	if len(tag)+len(group) <= MaxID {
		return tag + group
	}
	long := sha256.Sum256([]byte(group))
	return tag + "sha256." + hex.EncodeToString(long[:])
}

// ForwardKept makes an [Events.Subscription] of a runtime whose relays keep
// subscriptions: events of those that outlived a restart are posted to the runtime
// that subscribed then. c connects to addresses that others have named.
func ForwardKept(ctx context.Context, c *http.Client, log *slog.Logger) func(*Subscription, *SubscriptionEvent) {
	to := newLink(c, nil)
	return func(s *Subscription, e *SubscriptionEvent) {
		var keep relayKeep
		if err := json.Unmarshal(s.Kept(), &keep); err != nil || keep.Callback == "" {
			log.Info("an event of a subscription was dropped: it was of a caller who is gone", "thread", s.Thread, "tool", s.Tool)
			return
		}
		own := SubscriptionEvent{GroupID: keep.Group, ToolCallID: keep.ID, Text: e.Text, Associative: e.Associative, Final: e.Final}
		body, err := own.Append(nil)
		for try := 0; err == nil; try++ {
			var status int
			wait, end := context.WithTimeoutCause(ctx, defaultPost, slowError(defaultPost))
			status, err = to.post(wait, keep.Callback, body)
			end()
			switch {
			case err == nil && status < 500 || ctx.Err() != nil:
				return
			case err == nil:
				err = statusError(status)
			}
			if try == len(retryWaits) {
				break
			}
			err = nil
			timer := time.NewTimer(jitter(retryWaits[try]))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		log.Warn("an event of a subscription did not arrive", "thread", s.Thread, "tool", s.Tool, "error", err)
	}
}
