package rap

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/belayhq/belay"
)

// Errors of what a call asks its user.
var (
	// ErrUnanswered says that the user did not answer within AskWait.
	ErrUnanswered = errors.New("the user did not answer in time")
	// ErrBadAnswer says that the runtime answered with an index that no choice has
	// (RAP-84).
	ErrBadAnswer = errors.New("the answer is none of the choices")
	// ErrSubscribed says that the call became a subscription before, or never did.
	ErrSubscribed = errors.New("not possible for a call in this state")
)

// choice is a question that waits for its answer.
type choice struct {
	job    *Job
	size   int
	answer chan int // takes one; negative: it was out of range
}

// Choose asks the user to pick one of the choices, and waits for the index
// (RAP-82). def is what dismissing the question means. One question of a call is
// open at a time; others wait. A Stop withdraws the question at once: the error is
// then the *belay.Cancellation, and the URL for the answer is gone (RAP-85).
func (j *Job) Choose(ctx context.Context, prompt string, choices []string, def int) (int, error) {
	leave, err := j.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	token := rand.Text() // 130 bits
	c := &choice{job: j, size: len(choices), answer: make(chan int, 1)}
	j.h.mu.Lock()
	j.h.choices[token] = c
	j.h.mu.Unlock()
	defer func() {
		j.h.mu.Lock()
		delete(j.h.choices, token)
		j.h.mu.Unlock()
	}()
	err = j.send(ctx, &UserChoice{
		GroupID: j.inv.GroupID, ID: j.inv.ID, CallID: j.inv.CallID, Prompt: prompt, Choices: choices, Default: def,
		ResponseURL: j.base + PathChoice + "/" + token,
	})
	if err != nil {
		return 0, err
	}
	j.run.Pause()
	defer j.run.Start()
	timer := time.NewTimer(j.h.o.AskWait)
	defer timer.Stop()
	select {
	case i := <-c.answer:
		if i < 0 {
			return 0, ErrBadAnswer
		}
		return i, nil
	case <-timer.C:
		return 0, ErrUnanswered
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-j.live.Done():
		return 0, context.Cause(j.live)
	}
}

// Authorize shows the user a URL (https) at which they give an authorisation, and
// calls wait, which returns when it has come or cannot come any more (RAP-81). The
// context of wait also ends when AskWait is over. No token or code may be in the
// URL.
func (j *Job) Authorize(ctx context.Context, authURL string, wait func(context.Context) error) error {
	leave, err := j.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := j.send(ctx, &OAuth{GroupID: j.inv.GroupID, ID: j.inv.ID, CallID: j.inv.CallID, AuthURL: authURL}); err != nil {
		return err
	}
	j.run.Pause()
	defer j.run.Start()
	ctx, end := context.WithTimeoutCause(ctx, j.h.o.AskWait, ErrUnanswered)
	defer end()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	defer context.AfterFunc(j.live, func() { cut(context.Cause(j.live)) })()
	if err := wait(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// enter lets one question of the call at a time pass.
func (j *Job) enter(ctx context.Context) (leave func(), err error) {
	select {
	case j.asking <- struct{}{}:
		return func() { <-j.asking }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-j.live.Done():
		return nil, context.Cause(j.live)
	}
}

// Subscribe makes the call a live subscription (RAP-72): text is its first result,
// [Job.Event] sends what happens, and the return of the [Func] ends it, with the
// text that it returns as the last event. A subscription lasts as long as this
// process: nothing of it is kept on disk.
func (j *Job) Subscribe(ctx context.Context, text string) error {
	return j.subscribe(ctx, text, j.send)
}

func (j *Job) subscribe(ctx context.Context, text string, send func(context.Context, Message) error) error {
	j.mu.Lock()
	was := j.subscribed
	j.subscribed = true // before it is sent: a Stop from here on ends a subscription
	j.mu.Unlock()
	if was {
		return fmt.Errorf("%w: it is a subscription already", ErrSubscribed)
	}
	return send(ctx, &ToolResult{GroupID: j.inv.GroupID, ID: j.inv.ID, CallID: j.inv.CallID, Text: text, Subscription: true})
}

// Event sends one event of a subscription and returns when the runtime has taken
// it, so that events come no faster than they are taken (RAP-79). Those that are
// associative belong into the thread that subscribed, others into a thread of
// their own (RAP-76). After a Stop none is sent (RAP-78).
func (j *Job) Event(ctx context.Context, text string, associative bool) error {
	j.mu.Lock()
	subscribed := j.subscribed
	j.mu.Unlock()
	if !subscribed {
		return fmt.Errorf("%w: it is no subscription", ErrSubscribed)
	}
	return j.send(ctx, &SubscriptionEvent{GroupID: j.inv.GroupID, ToolCallID: j.inv.ID, Text: text, Associative: associative})
}

// View sends the latest state of a view of the thread: content is a JSON object
// (RAP-86).
func (j *Job) View(ctx context.Context, viewType string, content json.RawMessage) error {
	return j.send(ctx, &ViewUpdate{GroupID: j.inv.GroupID, ViewType: viewType, Content: content})
}

// serveChoice takes the answer to a choice. Its URL, which only the runtime knows
// that was asked, is the proof of who sends it.
func (h *Handler) serveChoice(w http.ResponseWriter, r *http.Request, token string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	h.mu.Lock()
	c := h.choices[token]
	h.mu.Unlock()
	if c == nil { // before the body is read: whoever guesses gets nothing read
		w.WriteHeader(http.StatusNotFound)
		return
	}
	body, err := readBody(w, r, MaxNotice)
	if err != nil {
		h.turnAway(w, r, err)
		return
	}
	s, err := ParseSelection(body)
	if err != nil || !isJSON(r) {
		refuse(w, http.StatusBadRequest, "the answer must be a JSON object with id and selected")
		return
	}
	h.mu.Lock()
	open := h.choices[token] == c && s.ID == c.job.inv.ID && c.job.run.Cancellation() == nil
	if open {
		delete(h.choices, token)
	}
	h.mu.Unlock()
	switch {
	case !open:
		w.WriteHeader(http.StatusNotFound)
	case s.Selected < 0 || s.Selected >= c.size:
		c.answer <- -1
		refuse(w, http.StatusBadRequest, fmt.Sprintf("selected is %d, there are %d choices", s.Selected, c.size))
	default:
		c.answer <- s.Selected
		empty(w)
	}
}

var _ error = (*belay.Cancellation)(nil) // what a stopped Choose returns
