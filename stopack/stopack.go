package stopack

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The names of the extension.
const (
	Extension = "io.github.belayhq/stop-ack"
	notice    = "notifications/stop-ack"
	await     = "stop-ack/await"
)

// Bounds.
const (
	maxToken   = 128
	maxPartial = 64 << 10 // bytes of a partial result
	maxHow     = 64       // bytes of the word for how work ended
	maxLive    = 10_000   // requests that are watched
	maxKept    = 4096     // and remembered after they returned
	keepFor    = time.Minute
	maxWait    = 25 * time.Second // for one answer; below the usual time-outs of proxies
	maxWaiting = 1000             // requests that wait for an answer
)

// outcome is how a handler returned.
type outcome string

const (
	stopped   outcome = "stopped"
	completed outcome = "completed"
	failed    outcome = "failed"
	running   outcome = "running"
	unknown   outcome = "unknown"
)

// Acks watch the handlers of one server, or of several that share them (an
// HTTP handler that makes a server for each session). Make one with [New]. Safe
// for concurrent use.
type Acks struct {
	mu      sync.Mutex
	notify  bool // a transport was wrapped
	all     map[string]*watched
	live    int
	kept    []*watched // those that returned, oldest first
	waiting int
	wires   map[string]wire // by token: where a notification for it goes
}

// watched is one request that carried a token.
type watched struct {
	acks      *Acks
	token     string
	principal string
	done      chan struct{} // closed when the handler returned, after the fields below

	outcome outcome
	ended   time.Time
	partial string // guarded by Acks.mu until done
	how     string // as Ended said; guarded as partial is
	broke   bool   // Partial was called after the cancel

	handed chan struct{} // closed when HandBack gave what nobody has been told yet; guarded as partial is
	early  bool          // it was closed
}

// New returns Acks that watch nobody yet.
func New() *Acks {
	return &Acks{all: map[string]*watched{}, wires: map[string]wire{}}
}

// Install declares the extension among the server's capabilities, watches its
// handlers and answers clients that ask. Call it before the server is used, and
// once for each server.
func (a *Acks) Install(s *mcp.Server) error {
	s.AddReceivingMiddleware(a.middleware)
	return mcp.AddReceivingCustomMethod(s, await, a.await)
}

// key finds the request in a handler's context.
type key struct{}

// Partial notes what the tool has so far: text that the caller may be shown if
// the request is stopped, at most 64 KiB. It replaces what was noted before.
// Called after ctx has ended it also says that the handler breaks its work off
// here, whatever result it returns. Without a request that wants an ack it does
// nothing.
func Partial(ctx context.Context, text string) {
	w, _ := ctx.Value(key{}).(*watched)
	if w == nil {
		return
	}
	w.acks.mu.Lock()
	defer w.acks.mu.Unlock()
	w.partial = cut(text)
	w.broke = w.broke || ctx.Err() != nil
}

// Ended notes how the work of a request came to its end, in one word of the
// server's own, at most 64 bytes: "returned" when it ended by itself,
// "interrupted" when an interpreter had to be stopped. The ack shows it. Without a
// request that wants an ack it does nothing.
func Ended(ctx context.Context, how string) {
	w, _ := ctx.Value(key{}).(*watched)
	if w == nil || len(how) > maxHow {
		return
	}
	w.acks.mu.Lock()
	defer w.acks.mu.Unlock()
	w.how = how
}

// HandBack is [Partial] for a tool that knows what it hands back before it has
// ended: the client is told the text at once, with the outcome "running", or learns it
// as soon as it asks. Before the request's cancel it is no more than Partial. It
// may block for as long as the client does not read, at most 5 s.
func HandBack(ctx context.Context, text string) {
	Partial(ctx, text)
	w, _ := ctx.Value(key{}).(*watched)
	if w == nil || ctx.Err() == nil || text == "" {
		return
	}
	w.acks.mu.Lock()
	to, ok := w.acks.wires[w.token]
	if !ok && !w.early { // who asks is told instead
		w.early = true
		close(w.handed)
	}
	w.acks.mu.Unlock()
	if ok {
		to.tell(ctx, w.token, ack{Outcome: running, Partial: cut(text)})
	}
}

func cut(s string) string {
	if len(s) <= maxPartial {
		return s
	}
	end := maxPartial
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// principalKey holds, for the handler of await, who asks.
type principalKey struct{}

func (a *Acks) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "initialize", "server/discover":
			res, err := next(ctx, method, req)
			a.declare(res)
			return res, err
		case await:
			return next(context.WithValue(ctx, principalKey{}, principal(req)), method, req)
		}
		w := a.watch(token(req), principal(req))
		if w == nil {
			return next(ctx, method, req)
		}
		ctx = context.WithValue(ctx, key{}, w)
		how := failed // if it panics
		defer func() { a.returned(ctx, w, how) }()
		res, err := next(ctx, method, req)
		how = w.judge(res, err)
		return res, err
	}
}

// principal names who sent the request, as far as the transport knows it.
func principal(req mcp.Request) string {
	if x := req.GetExtra(); x != nil && x.TokenInfo != nil {
		return x.TokenInfo.UserID
	}
	return ""
}

// token is the request's token, or "".
func token(req mcp.Request) string {
	p := req.GetParams()
	if v := reflect.ValueOf(p); !v.IsValid() || v.IsNil() { // a nil pointer in the interface, whose methods panic
		return ""
	}
	meta, _ := p.GetMeta()[Extension].(map[string]any)
	text, _ := meta["token"].(string)
	if len(text) > maxToken {
		return ""
	}
	return text
}

// declare adds the extension to what the server can do, in each era's place.
func (a *Acks) declare(res mcp.Result) {
	a.mu.Lock()
	can := map[string]any{"await": true, "notify": a.notify}
	a.mu.Unlock()
	switch r := res.(type) {
	case *mcp.InitializeResult:
		if r != nil && r.Capabilities != nil {
			r.Capabilities.Experimental = with(r.Capabilities.Experimental, can)
		}
	case *mcp.DiscoverResult:
		if r != nil && r.Capabilities != nil {
			delete(can, "notify") // nothing more may be sent for a cancelled request there
			r.Capabilities.Extensions = with(r.Capabilities.Extensions, can)
		}
	}
}

// with returns a copy of m that has the extension as well.
func with(m map[string]any, can map[string]any) map[string]any {
	out := map[string]any{Extension: can}
	for k, v := range m {
		if k != Extension {
			out[k] = v
		}
	}
	return out
}

// watch remembers a request that begins; nil if it is not to be watched.
func (a *Acks) watch(token, principal string) *watched {
	if token == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetLocked()
	if a.all[token] != nil || a.live >= maxLive {
		return nil
	}
	w := &watched{acks: a, token: token, principal: principal, done: make(chan struct{}), handed: make(chan struct{})}
	a.all[token] = w
	a.live++
	return w
}

// forgetLocked drops what has been remembered for long enough.
func (a *Acks) forgetLocked() {
	for len(a.kept) > 0 && (len(a.kept) > maxKept || time.Since(a.kept[0].ended) > keepFor) {
		delete(a.all, a.kept[0].token)
		a.kept[0] = nil
		a.kept = a.kept[1:]
	}
}

// judge says how a handler that was perhaps cancelled has returned.
func (w *watched) judge(res mcp.Result, err error) outcome {
	if r, ok := res.(*mcp.CallToolResult); ok && r != nil && err == nil && r.IsError {
		if err = r.GetError(); err == nil {
			err = errors.New("isError")
		}
	}
	w.acks.mu.Lock()
	defer w.acks.mu.Unlock()
	switch {
	case w.broke, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return stopped
	case err != nil:
		return failed
	}
	return completed
}

// returned keeps how the handler returned, and tells the client if the request
// was cancelled and there is a way.
func (a *Acks) returned(ctx context.Context, w *watched, how outcome) {
	a.mu.Lock()
	w.outcome, w.ended = how, time.Now()
	close(w.done)
	a.live--
	a.kept = append(a.kept, w)
	a.forgetLocked()
	to, ok := a.wires[w.token]
	delete(a.wires, w.token)
	a.mu.Unlock()
	if ok && ctx.Err() != nil {
		to.tell(ctx, w.token, ack{Outcome: w.outcome, Partial: w.shown(), Ended: w.how})
	}
}

// awaitParams and awaitResult are the question and its answer.
type awaitParams struct {
	mcp.ParamsBase
	Token  string `json:"token"`
	WaitMs int64  `json:"waitMs,omitempty"`
}

type awaitResult struct {
	mcp.ResultBase
	Outcome    outcome `json:"outcome"`
	Partial    string  `json:"partial,omitempty"`
	Ended      string  `json:"ended,omitempty"`
	ResultType string  `json:"resultType"` // of the modern era; others ignore it
}

// await answers when the handler has returned, or the time is over.
func (a *Acks) await(ctx context.Context, _ *mcp.ServerSession, p *awaitParams) (*awaitResult, error) {
	if p == nil || p.Token == "" || len(p.Token) > maxToken || p.WaitMs < 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("token must be a text of 1 to %d bytes, waitMs not negative", maxToken)}
	}
	who, _ := ctx.Value(principalKey{}).(string)
	a.mu.Lock()
	w := a.all[p.Token]
	known := w != nil && w.principal == who
	room := a.waiting < maxWaiting
	if known && room {
		a.waiting++
	}
	a.mu.Unlock()
	switch {
	case !known:
		return answer(unknown, ""), nil
	case !room:
		return w.now(), nil
	}
	defer func() {
		a.mu.Lock()
		a.waiting--
		a.mu.Unlock()
	}()
	timer := time.NewTimer(min(time.Duration(min(p.WaitMs, 1<<31))*time.Millisecond, maxWait))
	defer timer.Stop()
	a.mu.Lock()
	handed := w.handed
	a.mu.Unlock()
	select {
	case <-w.done:
	case <-handed:
		return w.handedBack(), nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return w.now(), nil
}

// handedBack is what a handler that runs on has handed back, for who asks first; the
// next one waits for its end.
func (w *watched) handedBack() *awaitResult {
	a := w.now()
	w.acks.mu.Lock()
	defer w.acks.mu.Unlock()
	if a.Outcome == running && w.handed != nil {
		a.Partial, w.handed = w.partial, nil
	}
	return a
}

// now is how things stand.
func (w *watched) now() *awaitResult {
	select {
	case <-w.done:
		a := answer(w.outcome, w.shown())
		a.Ended = w.how // closed behind it
		return a
	default:
		return answer(running, "")
	}
}

// shown is the partial result, which only work that was broken off has.
func (w *watched) shown() string {
	if w.outcome == completed {
		return ""
	}
	return w.partial
}

func answer(how outcome, partial string) *awaitResult {
	return &awaitResult{Outcome: how, Partial: partial, ResultType: "complete"}
}
