package rap

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// invoke takes a call. What cannot be answered is 400; everything else is
// acknowledged before any work is done (RAP-56), and registered before that.
func (h *Handler) invoke(w http.ResponseWriter, r *http.Request, caller string, body []byte) {
	if !isJSON(r) {
		refuse(w, http.StatusBadRequest, "the content type must be "+ContentType)
		return
	}
	inv, callback, problem := parseInvocation(body)
	if inv == nil {
		refuse(w, http.StatusBadRequest, complaint(problem))
		return
	}
	if h.o.Client == nil {
		if err := h.policy.CheckURL(callback); err != nil {
			refuse(w, http.StatusBadRequest, "callback_url: "+err.Error())
			return
		}
	}
	err := h.admit(&Job{h: h, inv: inv, caller: caller, base: h.base(r), refused: problem})
	switch {
	case err == nil:
		empty(w)
	default:
		h.log.Warn("call not taken", "caller", caller, "error", err)
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, err.Error())
	}
}

// admit registers a call and starts it. A call that is known already is the same
// call (RAP-61); one that was stopped before it came never starts (RAP-97).
func (h *Handler) admit(j *Job) error {
	j.key = jobKey{j.caller, j.inv.GroupID, j.inv.ID}
	j.prepare()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jobs[j.key] != nil || h.hasEndedLocked(j.key) {
		return nil
	}
	switch {
	case h.closed:
		return errHandlerClosed
	case h.total >= h.o.MaxCalls, h.active[j.caller] >= h.o.MaxCallsPerCaller:
		return fmt.Errorf("%w calls in flight", belay.ErrTooMany)
	case h.held+len(j.inv.Arguments) > h.o.MaxHeld:
		return fmt.Errorf("%w bytes of arguments in flight", belay.ErrTooMany)
	}
	// Two goroutines at most: what works, and what answers when it is stopped.
	h.wg.Add(2)
	j.parts.Store(2)
	run, err := h.tree.Register(j.spec())
	if err != nil {
		h.wg.Add(-2)
		return err
	}
	j.run = run
	j.live, j.endLive = contextOf(run)
	h.jobs[j.key] = j
	thread := threadKey{j.key.caller, j.key.thread}
	if h.threads[thread] == nil {
		h.threads[thread] = map[*Job]struct{}{}
	}
	h.threads[thread][j] = struct{}{}
	h.active[j.caller]++
	h.total++
	h.held += len(j.inv.Arguments)
	if c, ok := h.early.Take(j.key); ok {
		j.early = true
		run.Cancel(c)
	}
	h.crew.run(j.work, h.wg.Go)
	return nil
}

// hasEndedLocked looks without forgetting.
func (h *Handler) hasEndedLocked(key jobKey) bool {
	_, ok := h.ended.Take(key)
	if ok {
		h.ended.Put(key, struct{}{})
	}
	return ok
}

// spec is the run that a call is (RAP-96).
func (j *Job) spec() belay.Spec {
	name := j.inv.Operation
	if strings.TrimSpace(name) == "" {
		name = "(no operation)"
	}
	s := belay.Spec{
		Kind: belay.KindCall, Name: name, Server: j.h.o.Server, Owner: j.Owner(),
		Address: "rap (" + j.inv.GroupID + ", " + j.inv.ID + ")",
		Labels:  map[string]string{"protocol": "rap", "thread_id": j.inv.GroupID, "tool_call_id": j.inv.ID},
		Ladder:  j.h.o.Ladder, Queued: true, OnCancel: j.settle,
	}
	if j.h.o.Timeout > 0 {
		s.Deadline = time.Now().Add(j.h.o.Timeout)
	}
	return s
}

// settle is the run's OnCancel: whoever waits for the call is answered beside it. It
// is called, if at all, before the run could be finished, so that one of the two
// answers, never both.
func (j *Job) settle(*belay.Run, *belay.Cancellation) { go j.stopped() }

// answered forgets a call whose last message was sent, or given up: it is known as
// ended for a time, and its ids hit nothing any more.
func (h *Handler) answered(j *Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.jobs, j.key)
	thread := threadKey{j.key.caller, j.key.thread}
	if delete(h.threads[thread], j); len(h.threads[thread]) == 0 {
		delete(h.threads, thread)
	}
	h.ended.Put(j.key, struct{}{})
}

// part ends one of a job's two goroutines.
func (j *Job) part() {
	h := j.h
	if j.parts.Add(-1) == 0 {
		h.mu.Lock()
		h.total--
		h.held -= len(j.inv.Arguments)
		if h.active[j.caller]--; h.active[j.caller] == 0 {
			delete(h.active, j.caller)
		}
		h.mu.Unlock()
	}
	h.wg.Done()
}

// cancel takes a cancel. It is answered alike whatever it did (RAP-11, RAP-33).
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request, caller string, body []byte) {
	n, err := ParseCancel(body)
	if !isJSON(r) && err == nil {
		err = fmt.Errorf("%w: the content type must be %s", ErrMalformed, ContentType)
	}
	if err != nil {
		h.malformed(w, r, caller, err)
		return
	}
	key := jobKey{caller, n.ThreadID, n.ToolCallID}
	c := belay.Cancellation{Cause: belay.CauseUser, By: h.o.Owner(caller), Via: viaRAP, At: time.Now()}
	if h.stop(key, c) {
		empty(w)
		return
	}
	if h.limited(w, caller) {
		return
	}
	h.bury(key, c)
	h.log.Debug("cancel of a call that is not in flight", "caller", caller, "thread_id", n.ThreadID, "tool_call_id", n.ToolCallID)
	empty(w)
}

// stop stops the call, and reports whether one was stopped by it. A duplicate does
// nothing (RAP-18).
func (h *Handler) stop(key jobKey, c belay.Cancellation) bool {
	h.mu.Lock()
	j := h.jobs[key]
	h.mu.Unlock()
	return j != nil && j.run.Cancel(c)
}

// bury leaves a mark for a call that has not come yet; not for one that is here or
// was (RAP-97).
func (h *Handler) bury(key jobKey, c belay.Cancellation) {
	h.mu.Lock()
	j := h.jobs[key]
	if j == nil && !h.closed && !h.hasEndedLocked(key) {
		h.early.Put(key, c)
	}
	h.mu.Unlock()
	if j != nil {
		j.run.Cancel(c) // it came in between
	}
}

// closeThread stops what a thread has in flight (RAP-88).
func (h *Handler) closeThread(w http.ResponseWriter, r *http.Request, caller string, body []byte) {
	n, err := ParseClose(body)
	if !isJSON(r) && err == nil {
		err = fmt.Errorf("%w: the content type must be %s", ErrMalformed, ContentType)
	}
	if err != nil {
		h.malformed(w, r, caller, err)
		return
	}
	h.mu.Lock()
	var runs []*belay.Run
	for j := range h.threads[threadKey{caller, n.ThreadID}] {
		runs = append(runs, j.run)
	}
	h.mu.Unlock()
	if len(runs) == 0 && h.limited(w, caller) {
		return
	}
	// One Stop, however many calls it ends.
	c := belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseParent, By: h.o.Owner(caller), Via: viaRAP, Reason: "the thread was closed", At: time.Now()}
	for _, run := range runs {
		run.Cancel(c)
	}
	if closer, ok := h.o.Toolset.(ThreadCloser); ok {
		h.spawn(func() { closer.CloseThread(h.live, caller, n.ThreadID) })
	}
	empty(w)
}

// spawn starts what Close waits for, unless it has begun.
func (h *Handler) spawn(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.wg.Go(f)
	}
}

// malformed answers a notice that says nothing as one that does, so that nothing
// is learned from the answer; it only costs the caller's rate.
func (h *Handler) malformed(w http.ResponseWriter, r *http.Request, caller string, err error) {
	if errors.Is(err, ErrTooLarge) {
		h.turnAway(w, r, err)
		return
	}
	if h.limited(w, caller) {
		return
	}
	h.log.Warn("malformed notice; nothing was stopped", "path", r.URL.Path, "caller", caller, "error", belay.CleanReason(err.Error()))
	empty(w)
}

// limited answers 429 when the caller has had too many notices that stopped
// nothing (RAP-34). What does stop something is bounded by the calls in flight
// and never refused: a runtime sends each cancel once, and may stop hundreds of
// calls in one moment.
func (h *Handler) limited(w http.ResponseWriter, caller string) bool {
	wait, ok := h.rates.take(caller)
	if ok {
		return false
	}
	seconds := int(wait/time.Second) + 1
	w.Header().Set("Retry-After", fmt.Sprint(seconds))
	w.WriteHeader(http.StatusTooManyRequests)
	return true
}
