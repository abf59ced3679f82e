package faketool

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// forkKinds are the ways in which a tool can leave a process behind, from the
// tame to the wild.
const forkKinds = "child, setsid, daemon, envi, respawn, termproof"

// startHelper starts one helper that ticks under "<key>/<how>":
//
//	child      a plain child in the same process group
//	setsid     a child in a session of its own
//	daemon     forked twice, in a session of its own, re-parented
//	envi       as daemon, and with an empty environment: no marker to find it by
//	respawn    two processes in sessions of their own, each restarting the other
//	termproof  a child in a session of its own that ignores SIGTERM
func startHelper(how, key string, ms int, witness string, d *deadline) error {
	flags := []string{
		d.arg(), "-witness=" + witness, "-key=" + key + "/" + how, fmt.Sprintf("-ms=%d", ms),
	}
	tick := append([]string{"tick"}, flags...)
	switch how {
	case "child":
		return startDetached(tick, false, false)
	case "setsid":
		return startDetached(tick, true, false)
	case "termproof":
		return startDetached(append(tick, "-deaf-term"), true, false)
	case "daemon":
		return startDetached(append([]string{"spawn", "-setsid"}, tick...), false, false)
	case "envi":
		return startDetached(append([]string{"spawn", "-setsid", "-clean-env"}, tick...), true, true)
	case "respawn":
		return startDetached(append([]string{"respawn"}, flags...), true, false)
	}
	return fmt.Errorf("unknown kind of fork %q; want one of %s", how, strings.ReplaceAll(forkKinds, ",", ""))
}

// pause waits, asleep or burning processor time, and reports false when ctx
// ended before the time was over.
func pause(ctx context.Context, d time.Duration, busy bool) bool {
	if busy {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if ctx.Err() != nil {
				return false
			}
		}
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
