package admin

import (
	"context"
	"net/http"
	"time"
)

// Whoever asks too often gets the answer after a moment. A client that sends its
// next request when it has the answer to the last is slowed down to a few a
// second for each of its connections, and leaves the processor to others; one
// that heeds Retry-After loses nothing. Only so many are held at once: what is
// beyond that is answered at once, since holding costs memory, too.
const (
	calmFor = 200 * time.Millisecond
	calmMax = 1_000
)

// allow asks a limiter; false: the request was refused by refusal, which gets
// the status, and is to be left.
func (a *API) allow(w http.ResponseWriter, r *http.Request, l Limiter, p Principal, refusal func(status int)) bool {
	ok, retry := l.Allow(accountOf(p))
	if ok {
		return true
	}
	a.hold(r.Context())
	w.Header().Set("Retry-After", retryAfter(retry))
	refusal(http.StatusTooManyRequests)
	return false
}

func (a *API) hold(ctx context.Context) {
	select {
	case a.held <- struct{}{}:
		defer func() { <-a.held }()
	default:
		return
	}
	timer := time.NewTimer(a.calm)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
