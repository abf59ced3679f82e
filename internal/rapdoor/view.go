package rapdoor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
)

// What the calls of a thread report while they run is one view of it for each
// server: {"calls":[{"id","operation","progress","total","reports":[{"id","message"}]}]}
// (RAP-86, AT-54). A runtime keeps the latest of a view, so a view of each call
// would stay with it for ever, and one that holds a single call would lose the
// others. A call leaves the view with its end; the result says more.

// ViewType is the type of the view of the calls at a server.
func ViewType(server string) string {
	const prefix = "belay.progress."
	return shorten(prefix+server, rap.MaxName-len("…"))
}

// Bounds of a view.
const (
	maxShown   = 16 // calls
	maxReports = 64 // of a call; the oldest give way
	maxReport  = 1 << 10
	maxNumber  = 32 // characters

	viewEvery = 200 * time.Millisecond // between two states
	viewWait  = 5 * time.Second        // for a runtime to take one
)

var errViewWait = fmt.Errorf("the runtime did not take a view within %v", viewWait)

// boardKey names a view: threads of two callers never meet.
type boardKey struct{ server, caller, thread string }

// board is the view of a thread's calls at a server.
type board struct {
	posting chan struct{} // holds a token while a state is posted, and until the next may be
	users   int           // guarded by Door.mu

	mu     sync.Mutex // guards the fields below
	pens   []*pen
	calls  []*sheet // that have reported something, the first reported first
	said   uint64   // counts the changes
	posted uint64   // said, when the last state was made
}

// sheet is what one call has reported.
type sheet struct {
	ID        string          `json:"id"`
	Operation string          `json:"operation"`
	Progress  json.RawMessage `json:"progress,omitempty"` // a number, as the server wrote it
	Total     json.RawMessage `json:"total,omitempty"`
	Reports   []report        `json:"reports,omitempty"`

	listed bool
}

// report is one line. The next one with its id takes its place.
type report struct {
	ID      string `json:"id,omitempty"`
	Message string `json:"message"`
}

// pen writes the view for one call.
type pen struct {
	b    *board
	j    *rap.Job
	own  *sheet
	news chan struct{} // has room for one: the view has changed
	left bool          // guarded by board.mu: it is in the view no more
}

// view opens the view of a call's thread, and returns what takes the call's reports
// and what ends it.
func (d *Door) view(ctx context.Context, server string, j *rap.Job) (p *pen, end func()) {
	key := boardKey{server, j.Caller(), j.Thread()}
	d.mu.Lock()
	b := d.boards[key]
	if b == nil {
		b = &board{posting: make(chan struct{}, 1)}
		d.boards[key] = b
	}
	b.users++
	d.mu.Unlock()
	p = &pen{b: b, j: j, own: &sheet{ID: j.ID(), Operation: j.Operation()}, news: make(chan struct{}, 1)}
	b.mu.Lock()
	b.pens = append(b.pens, p)
	b.mu.Unlock()
	ctx, cut := context.WithCancelCause(ctx)
	written := make(chan struct{})
	go func() { // end waits for it
		defer close(written)
		defer p.leave() // with the Stop: what comes after it takes its time
		if err := p.write(ctx, ViewType(server)); err != nil {
			d.log.Debug("the runtime takes no views; the rest of this call is not shown", "server", server, "run", j.Run().ID(), "error", err)
		}
	}()
	return p, func() {
		cut(nil)
		<-written
		d.mu.Lock()
		defer d.mu.Unlock()
		if b.users--; b.users == 0 {
			delete(d.boards, key)
		}
	}
}

// leave takes the call out of the view; the others go on to show it.
func (p *pen) leave() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.pens = slices.DeleteFunc(p.b.pens, func(o *pen) bool { return o == p })
	listed := len(p.b.calls)
	p.b.calls = slices.DeleteFunc(p.b.calls, func(s *sheet) bool { return s == p.own })
	p.left = true
	if len(p.b.calls) == listed {
		return
	}
	p.b.said++
	for _, o := range p.b.pens {
		o.wake()
	}
}

// wake has the pen look whether there is something to post.
func (p *pen) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// write posts the view when it has changed, until ctx ends or the runtime does not
// take it.
func (p *pen) write(ctx context.Context, kind string) error {
	for {
		select {
		case <-p.news:
		case <-ctx.Done():
			return nil
		}
		select {
		case p.b.posting <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		err := p.post(ctx, kind)
		if err == nil {
			pause := time.NewTimer(viewEvery)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
		<-p.b.posting
		if err != nil && !errors.Is(err, errShown) && ctx.Err() == nil {
			return err
		}
	}
}

// errShown says that another call of the thread has posted the state already.
var errShown = errors.New("nothing has changed")

func (p *pen) post(ctx context.Context, kind string) error {
	ctx, end := context.WithTimeoutCause(ctx, viewWait, errViewWait)
	defer end()
	p.b.mu.Lock()
	if p.b.posted == p.b.said {
		p.b.mu.Unlock()
		return errShown
	}
	p.b.posted = p.b.said
	content, err := json.Marshal(struct {
		Calls []*sheet `json:"calls"`
	}{p.b.calls})
	p.b.mu.Unlock()
	if err != nil {
		return err
	}
	return p.j.View(ctx, kind, content)
}

// hear takes what a server says during the call: its progress is what a Stop has to
// show, and what the view shows. The sender holds locks.
func (p *pen) hear(frame []byte) {
	m := &mcp.Message{}
	if m.Read(frame) != nil || m.Method != mcp.NoticeProgress {
		return
	}
	var found [4]jsonrpc.Span
	if jsonrpc.Lookup(frame, m.Params, []string{"message", "progress", "total", "_meta"}, found[:]) != nil {
		return
	}
	text, err := jsonrpc.ReadString(frame, found[0], 64<<10)
	said := err == nil && text != ""
	if said {
		p.j.Partial(text)
	}
	if p.j.Run().Cancellation() != nil {
		return // a report after the Stop does nothing (AT-54)
	}
	at, scripted, _ := jsonrpc.Member(frame, found[3], mcp.MetaReport)
	id, _ := jsonrpc.ReadString(frame, at, 256)
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	s := p.own
	if p.left {
		return
	}
	if !s.listed {
		if len(p.b.calls) >= maxShown {
			return
		}
		s.listed = true
		p.b.calls = append(p.b.calls, s)
	}
	s.Progress, s.Total = number(frame, found[1]), number(frame, found[2])
	if said {
		s.put(report{ID: id, Message: shorten(text, maxReport)}, scripted && id == "")
	}
	p.b.said++
	p.wake()
}

// put writes a line: a new one where there is none with its id, or where it stands
// by itself.
func (s *sheet) put(r report, alone bool) {
	i := slices.IndexFunc(s.Reports, func(o report) bool { return o.ID == r.ID })
	if i >= 0 && !alone {
		s.Reports[i] = r
		return
	}
	if len(s.Reports) >= maxReports {
		s.Reports = append(s.Reports[:0], s.Reports[1:]...)
	}
	s.Reports = append(s.Reports, r)
}

// number is a JSON number as it is written; nil if there is none.
func number(frame []byte, at jsonrpc.Span) json.RawMessage {
	if jsonrpc.KindAt(frame, at) != jsonrpc.NumberValue || at.Len() > maxNumber {
		return nil
	}
	text := string(at.Of(frame))
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return nil
	}
	return json.RawMessage(text)
}
