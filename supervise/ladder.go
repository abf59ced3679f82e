package supervise

import (
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/peers"
)

// SlowKillAfter is the least time between SIGTERM and SIGKILL for a tool that
// is marked `cleanup: slow` (DESIGN 11, 7 and 12).
const SlowKillAfter = 10 * time.Second

// giveUpMargin is what a ladder leaves between the kill and giving up.
const giveUpMargin = 2 * time.Second

// Ladder fits the times of a ladder to a command: ten seconds before the kill
// if it is known to clean up slowly, why then says what; and always enough time
// before giving up that a slow tool which is only found inside the tree gets
// its ten seconds too. Call it with the ladder that goes into the run's Spec.
func Ladder(l belay.Ladder, facts *peers.Facts, argv []string) (fitted belay.Ladder, why string) {
	l = l.WithDefaults()
	if w, ok := facts.Slow(argv); ok {
		why = w
		l.KillAfter = max(l.KillAfter, SlowKillAfter)
	}
	l.ConfirmAfter = max(l.ConfirmAfter, l.Grace+max(l.KillAfter, SlowKillAfter)+giveUpMargin)
	return l, why
}
