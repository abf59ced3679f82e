package bridge

import (
	"errors"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

const (
	maxOpen  = 65536            // requests to one peer without their answer
	maxMuted = 10_000           // of these, such as nobody waits for any more
	keepMute = 10 * time.Minute // and for how long they are remembered
	earlyFor = 10 * time.Second // how long a cancel waits for its request (ACP-L11)
)

// hop is one peer with its connection. Ids belong to one hop (ACP-B3): a request
// has the asker's id there, and one of ours here. Guarded by the bridge's lock.
type hop struct {
	lane
	name  string // "editor" or "agent", for logs
	forms acp.Forms
	ids   jsonrpc.Minter
	sent  int // requests

	open  map[string]*request // sent to this peer, by our id, until its answer came
	asked map[string]*request // received from this peer, by its id, until it has its answer
	muted []*request          // of open, those that nobody waits for, the oldest first

	seen  *belay.Tombstones[string, struct{}] // ids of requests that had their answer
	early *belay.Tombstones[string, acp.Cancel]
}

func newHop(name string) *hop {
	return &hop{
		name:  name,
		open:  map[string]*request{},
		asked: map[string]*request{},
		seen:  belay.NewTombstones[string, struct{}](keepMute, maxMuted),
		early: belay.NewTombstones[string, acp.Cancel](earlyFor, 1000),
	}
}

// request is one request that passes, or one that Belay makes itself. Either side
// of it is open or settled on its own.
type request struct {
	from   *hop       // the asker; nil: Belay
	id     jsonrpc.ID // there
	to     *hop
	hid    jsonrpc.ID // ours, at to
	method string
	at     time.Time
	nr     int // in the order in which they were sent to that peer

	s *session // that it concerns; nil: none, or not known
	t *turn    // of a prompt, the turn; of a request of the agent, the turn that it belongs to

	run      *belay.Run // of a request of the agent; nil: it has none
	settled  bool       // the asker has its answer, or wants none
	answered bool       // the other side has answered
	parcel   *parcel    // it waits in the lane
	told     bool       // the other side was told that it is cancelled
	cancel   bool       // the asker has cancelled it
	early    bool       // before it came
	timer    *time.Timer
	terminal string // that it is about
	tool     string // the tool call that it names
	undo     bool   // its success must be undone

	// reply gets the answer to one of Belay's own requests, under the lock. e is nil
	// if there will be none.
	reply func(e *jsonrpc.Envelope, frame []byte)
}

// expect notes that r was sent, under an id that no other request ever had.
func (h *hop) expect(r *request) {
	h.sent++
	r.to, r.hid, r.at, r.nr = h, h.ids.Next(), time.Now(), h.sent
	h.open[r.hid.Key()] = r
}

// full reports whether the peer owes so many answers that it gets no more requests.
func (h *hop) full() bool { return len(h.open) >= maxOpen }

// take finds the request that an answer with this id is for, and is owed no more.
func (h *hop) take(id jsonrpc.ID) *request {
	r := h.open[id.Key()]
	if r != nil {
		delete(h.open, id.Key())
		r.answered = true
	}
	return r
}

// forget drops a request that was never sent.
func (h *hop) forget(r *request) {
	delete(h.open, r.hid.Key())
	r.answered = true
}

// mute remembers that nobody waits for r any more, for a bounded time.
func (h *hop) mute(r *request) {
	if r.answered {
		return
	}
	h.muted = append(h.muted, r)
	n := 0
	for n < len(h.muted) && (h.muted[n].answered || len(h.muted)-n > maxMuted || time.Since(h.muted[n].at) > keepMute) {
		if old := h.muted[n]; !old.answered {
			delete(h.open, old.hid.Key())
		}
		n++
	}
	if n > 0 {
		h.muted = append(h.muted[:0], h.muted[n:]...)
	}
}

// settle notes that the asker of r has its answer now; false if it had it before.
func (r *request) settle() bool {
	if r.settled {
		return false
	}
	r.settled = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.to != nil {
		r.to.mute(r)
	}
	if r.from == nil {
		return true
	}
	key := r.id.Key()
	if r.from.asked[key] == r { // else the peer has used the id again
		delete(r.from.asked, key)
	}
	r.from.seen.Put(key, struct{}{})
	return true
}

// answer gives the asker a result of Belay's.
func (r *request) answer(result []byte) {
	if r.settle() && r.from != nil {
		_ = r.from.say(func(dst []byte) []byte { return jsonrpc.AppendResponse(dst, r.id, result) })
	}
}

// fail gives the asker an error of Belay's.
func (r *request) fail(code int, message string, data []byte) {
	if r.settle() && r.from != nil {
		_ = r.from.say(func(dst []byte) []byte { return jsonrpc.AppendError(dst, r.id, code, message, data) })
	}
}

// pass gives the asker the answer of the other side, as it is but for its id and
// the edits.
func (r *request) pass(e *jsonrpc.Envelope, frame []byte, edits ...jsonrpc.Edit) error {
	if !r.settle() || r.from == nil {
		return nil
	}
	edits = append(edits, jsonrpc.Edit{At: e.IDAt, New: r.id.AppendTo(nil)})
	err := r.from.relay(frame, edits...)
	if errors.Is(err, jsonrpc.ErrQueueFull) { // an answer that is lost would hang its asker
		_, err = r.from.w.SendUrgentFrame(r.from.last, frame, edits...)
	}
	return err
}

// tell tells the other side, once, that the request is cancelled. It reports
// whether anything was sent: there are peers to which nothing may be.
func (r *request) tell() bool {
	if r.told || r.answered || r.to == nil {
		return r.told
	}
	form := r.to.forms.Send()
	if form == acp.FormNone || form == acp.FormUnknown {
		return false
	}
	r.told = r.to.say(func(dst []byte) []byte { return acp.AppendCancel(dst, form, r.hid) }) == nil
	return r.told
}
