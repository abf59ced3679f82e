package rap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/egress"
)

const (
	deliverWait = 15 * time.Second // for one attempt
	maxAnswer   = 4 << 10          // of a runtime's answer; it says nothing
)

// ErrUndelivered says that a message did not reach the runtime.
var ErrUndelivered = errors.New("the runtime did not take the message")

// errFinal ends what a call still sends when its last message goes out.
var errFinal = fmt.Errorf("%w: the call is over", belay.ErrEnded)

// deliverFinal sends the last message of a call, after everything else of it, and
// forgets the call. It takes as long as the retries do.
func (j *Job) deliverFinal(m Message) {
	j.mu.Lock()
	j.final = true
	j.mu.Unlock()
	j.endLive(errFinal) // whoever is sending ends soon
	j.sending <- struct{}{}
	defer func() { <-j.sending }()
	defer j.h.answered(j)
	if err := j.post(j.h.live, m); err != nil {
		j.h.log.Warn("a call's result could not be delivered", "call", j.describe(), "caller", j.caller, "error", err)
	}
}

// send posts a message that is not the last one. Its error wraps [ErrUndelivered],
// or is the cause for which ctx or the call has ended.
func (j *Job) send(ctx context.Context, m Message) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(j.live, func() { end(context.Cause(j.live)) })()
	return j.begin(ctx, m)
}

// begin is send for a message that, once begun, goes on for as long as ctx says,
// whatever becomes of the call.
func (j *Job) begin(ctx context.Context, m Message) error {
	select {
	case j.sending <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-j.sending }()
	j.mu.Lock()
	final := j.final
	j.mu.Unlock()
	switch {
	case j.live.Err() != nil: // ctx learns of it a moment later
		return context.Cause(j.live)
	case final:
		return errFinal
	}
	return j.post(ctx, m)
}

// post sends a message, and again as RAP-69 says: after a 5xx, after a timeout, and
// when there was no connection; never after another answer.
func (j *Job) post(ctx context.Context, m Message) error {
	body, err := m.Append(nil)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		again, err := j.h.attempt(ctx, j.inv.CallbackURL, body)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !again || i >= len(j.h.o.Retries):
			return fmt.Errorf("%w: %w", ErrUndelivered, err)
		}
		if !j.h.pause(ctx, j.h.o.Retries[i]) {
			return fmt.Errorf("%w: %w", ErrUndelivered, err)
		}
	}
}

// attempt posts once, and says whether it may be tried again.
func (h *Handler) attempt(ctx context.Context, to string, body []byte) (again bool, err error) {
	ctx, end := context.WithTimeoutCause(ctx, deliverWait, slowError(deliverWait))
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("its callback URL cannot be used")
	}
	resp, err := h.send(req)
	switch {
	case errors.Is(err, egress.ErrAddress):
		return false, egress.ErrAddress
	case errors.Is(err, egress.ErrPlain):
		return false, egress.ErrPlain
	case err != nil:
		return true, withoutAddress(err)
	}
	defer resp.Body.Close()
	if resp.ContentLength != 0 {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return false, nil
	}
	return resp.StatusCode >= 500, fmt.Errorf("it answered %d", resp.StatusCode)
}

// withoutAddress says what went wrong without the URL, which the errors of package
// net/http quote: it is a secret (RAP-40).
func withoutAddress(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("it did not answer in time")
	}
	return errors.New("it could not be reached")
}

// pause waits before the next attempt, give or take a fifth, so that those who
// failed together do not come back together. It returns false when ctx has ended.
// A Handler that is being closed waits no longer.
func (h *Handler) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-h.draining:
		return false // there was an attempt
	default:
	}
	timer := time.NewTimer(d - d/5 + rand.N(2*d/5+1)) //nolint:gosec // nobody gains by knowing it
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.draining:
		return true // one more
	case <-ctx.Done():
		return false
	}
}
