package rapdoor

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
)

// Times of a stopped call.
const (
	// lostWait is how long the gateway may take to settle a call that was stopped,
	// which it does at once, before it is taken for lost.
	lostWait = 5 * time.Second
	// proofWait is longer than any ladder: a drain and a slow clean-up included.
	proofWait = 3 * time.Minute
	// lateWait is how long evidence is still taken after a ladder has given up, and
	// closingWait the same when Belay ends.
	lateWait    = 10 * time.Second
	closingWait = time.Second
	lateTick    = 20 * time.Millisecond
)

var errNoVerdict = errors.New("there is no verdict")

// call carries a call out: as an MCP call whose run hangs below the job's, so that
// every Stop of the one stops the other.
func (t *toolset) call(ctx context.Context, j *rap.Job) (rap.Result, error) {
	l, err := t.d.use(ctx, t.name, j.Owner())
	if err != nil {
		return rap.Result{}, err
	}
	defer l.release()
	own := append([]byte(`"name":`), jsonrpc.AppendString(nil, j.Operation())...)
	own = append(append(own, `,"arguments":`...), j.Arguments()...)
	// ctx must not end the request: the run below is stopped by the tree, by whose
	// ladder it then ends, and says what it had.
	patient, end := context.WithCancelCause(t.d.life)
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		lost := time.NewTimer(lostWait)
		defer lost.Stop()
		select {
		case <-lost.C:
			end(context.Cause(ctx))
		case <-patient.Done():
		}
	})()
	shown, conceal := t.d.view(ctx, t.name, j)
	defer conceal()
	w := &waiter{job: j, heard: shown.hear}
	m, err := t.legs(ctx, patient, l, w, own)
	if ctx.Err() != nil {
		return rap.Result{}, t.stopped(ctx, j)
	}
	if err != nil {
		return rap.Result{}, err
	}
	r, err := result(m)
	if w.elicited.Load() && t.d.declined(ctx, j) {
		if err != nil {
			return r, &declinedError{err.Error()}
		}
		r.Declined = true
	}
	return r, err
}

// legs sends the call, and in the modern era again with what the person has
// answered, until the server is done with it.
func (t *toolset) legs(ctx, patient context.Context, l *link, w *waiter, own []byte) (*mcp.Message, error) {
	run := w.job.Run().ID().String()
	params := own
	for range maxLegs {
		leg := &waiter{job: w.job, heard: w.heard}
		m, err := l.ask(patient, mcp.MethodCallTool, withToken(l.params("", params), run), leg, run)
		if leg.elicited.Load() {
			w.elicited.Store(true)
		}
		if err != nil || ctx.Err() != nil || !m.InputRequired() {
			return m, err
		}
		next, err := nextLeg(ctx, w.job, m)
		if err != nil {
			return nil, err
		}
		w.elicited.Store(true)
		params = append(append(slices.Clip(own), ','), next...)
	}
	return nil, errLegs
}

// withToken asks for progress reports: they are what a stopped tool has to show.
func withToken(params []byte, token string) []byte {
	value := jsonrpc.AppendString([]byte(`"progressToken":`), token)
	all := jsonrpc.Span{Start: 0, End: len(params)}
	meta, ok, _ := jsonrpc.Member(params, all, "_meta")
	if !ok {
		value = append(append([]byte(`,"_meta":{`), value...), '}')
		return jsonrpc.AppendSplice(nil, params, jsonrpc.Edit{At: jsonrpc.Span{Start: len(params) - 1, End: len(params) - 1}, New: value})
	}
	return jsonrpc.AppendSplice(nil, params, jsonrpc.Edit{At: jsonrpc.Span{Start: meta.Start + 1, End: meta.Start + 1}, New: append(value, ',')})
}

// stopped waits until it is known what became of the runs below, and returns the
// error that says as much as they prove. What they had goes to the runtime at once.
func (t *toolset) stopped(ctx context.Context, j *rap.Job) error {
	cause := context.Cause(ctx)
	wait, end := context.WithTimeoutCause(t.d.life, proofWait, errNoVerdict)
	defer end()
	below, err := t.d.o.Tree.List(wait, belay.Filter{Under: j.Run().ID(), Ended: true})
	if err != nil {
		return fmt.Errorf("%w: %w", rap.ErrUnproven, cause)
	}
	runs := make([]*belay.Run, 0, len(below))
	for i := range below {
		if below[i].ID == j.Run().ID() {
			continue
		}
		if run, err := t.d.o.Tree.Run(below[i].ID); err == nil {
			runs = append(runs, run)
			if r := run.Receipt(); r != nil && r.Partial != "" {
				j.Partial(r.Partial)
			}
		}
	}
	for _, run := range runs {
		if _, err := run.Wait(wait); err != nil {
			return fmt.Errorf("%w: %w", rap.ErrUnproven, cause)
		}
	}
	switch t.d.proven(wait, runs) {
	case belay.Confirmed:
		return cause
	case belay.Acknowledged:
		j.Run().Observe(belay.Evidence{Kind: belay.SeenResult, Scope: belay.ScopeRemote, Detail: "the server behind it answered after the Stop"})
	}
	return fmt.Errorf("%w: %w", rap.ErrUnproven, cause)
}

// proven is what all of the runs prove: the weakest verdict of any, or nothing.
// Evidence may come after a ladder has given up, when a process ends late or with
// Belay: it is waited for a little longer.
func (d *Door) proven(ctx context.Context, runs []*belay.Run) belay.Verdict {
	late := time.NewTimer(lateWait)
	defer late.Stop()
	closing := d.closing
	tick := time.NewTicker(lateTick) // receipts have no signal of their own
	defer tick.Stop()
	for {
		verdict := weakest(runs)
		if verdict == belay.Confirmed || verdict == belay.Acknowledged {
			return verdict
		}
		select {
		case <-tick.C:
		case <-closing: // the servers are ending now, or never
			closing = nil
			late.Reset(closingWait)
		case <-late.C:
			return verdict
		case <-ctx.Done():
			return verdict
		}
	}
}

func weakest(runs []*belay.Run) belay.Verdict {
	verdict := belay.Confirmed
	for _, run := range runs {
		switch receipt := run.Receipt(); {
		case receipt == nil: // it had ended by itself
		case receipt.Verdict == belay.Acknowledged:
			verdict = belay.Acknowledged
		case receipt.Verdict != belay.Confirmed:
			return receipt.Verdict
		}
	}
	return verdict
}

// result says in the other protocol's words what a server answered.
func result(m *mcp.Message) (rap.Result, error) {
	var r rap.Result
	at, _, _ := jsonrpc.Member(m.Frame, m.Result, "content")
	for e := range jsonrpc.Elements(m.Frame, at) {
		if len(r.Content) >= rap.MaxItems {
			break
		}
		if item, ok := itemOf(m.Frame, e); ok {
			r.Content = append(r.Content, item)
		}
	}
	if len(r.Content) == 0 {
		if s, ok, _ := jsonrpc.Member(m.Frame, m.Result, "structuredContent"); ok {
			r.Text = string(s.Of(m.Frame))
		}
	}
	if len(r.Content) == 1 && r.Content[0].Type == rap.ItemText {
		r.Text, r.Content = r.Content[0].Text, nil
	}
	if mcp.ToolFailed(m) {
		return rap.Result{}, errors.New(textOf(&r))
	}
	if len(r.Content) > 0 && r.Content[0].Type == rap.ItemImage { // a runtime without images needs something to show
		r.Content = append([]rap.Item{{Type: rap.ItemText, Text: "The tool answered with an image."}}, r.Content...)
	}
	return r, nil
}

func textOf(r *rap.Result) string {
	texts := []string{}
	if r.Text != "" {
		texts = append(texts, r.Text)
	}
	for _, item := range r.Content {
		if item.Type == rap.ItemText {
			texts = append(texts, item.Text)
		}
	}
	if len(texts) == 0 {
		return "the tool failed and did not say why"
	}
	return strings.Join(texts, "\n")
}

// itemOf reads one content item. What the protocol has no type for becomes a text
// that says so (RAP-63).
func itemOf(frame []byte, at jsonrpc.Span) (rap.Item, bool) {
	text := func(in jsonrpc.Span, keys ...string) string {
		s, _, _ := jsonrpc.Path(frame, in, keys...)
		v, err := jsonrpc.ReadString(frame, s, rap.MaxMessage)
		if err != nil {
			return ""
		}
		return v
	}
	switch kind := text(at, "type"); kind {
	case "text":
		return rap.Item{Type: rap.ItemText, Text: text(at, "text")}, true
	case "image":
		item := rap.Item{Type: rap.ItemImage, Data: text(at, "data"), MediaType: text(at, "mimeType")}
		if item.Data == "" || item.MediaType == "" {
			return rap.Item{}, false
		}
		return item, true
	case "resource":
		if v := text(at, "resource", "text"); v != "" {
			return rap.Item{Type: rap.ItemText, Text: v}, true
		}
		return rap.Item{Type: rap.ItemText, Text: "[resource " + text(at, "resource", "uri") + "]"}, true
	case "resource_link":
		return rap.Item{Type: rap.ItemText, Text: strings.TrimSpace("[resource " + text(at, "uri") + "] " + text(at, "description"))}, true
	case "":
		return rap.Item{}, false
	default:
		size := base64.StdEncoding.DecodedLen(len(text(at, "data")))
		return rap.Item{Type: rap.ItemText, Text: fmt.Sprintf("[%s of about %d bytes, which cannot be shown here]", kind, size)}, true
	}
}
