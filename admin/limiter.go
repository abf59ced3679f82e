package admin

import (
	"errors"
	"time"

	"github.com/belayhq/belay/auth"
)

// Rates is a [Limiter] with a share for each principal, so that one who asks too
// often takes nothing from another. Make one with [NewRates].
type Rates struct{ shares *auth.Limiter }

var _ Limiter = Rates{}

// NewRates returns a limiter; values that are not positive mean the defaults,
// those of [auth.Limits] (ORC-36).
func NewRates(perSecond float64, burst int) Rates {
	return Rates{auth.NewLimiter(auth.Limits{PerSecond: max(perSecond, 0), Burst: max(burst, 0)})}
}

// Allow implements [Limiter].
func (r Rates) Allow(principal string) (bool, time.Duration) {
	err := r.shares.TakeFor(principal)
	if limited, ok := errors.AsType[*auth.Limited](err); ok {
		return false, limited.After
	}
	return err == nil, 0
}
