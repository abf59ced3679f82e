package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
)

// mesh is all Belay processes of this user.
func (e *Env) mesh() *local.Mesh {
	return local.NewMesh(local.MeshOptions{Dirs: local.Dirs(e.Getenv)})
}

// interruptible is a context that Ctrl-C ends, with the signal as its cause.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// warn prints every error that err joins, one line each.
func (e *Env) warn(err error) {
	for _, one := range flatten(err) {
		e.Warnf("%v", one)
	}
}

// flatten takes joined errors apart; nil gives none.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok || fmt.Sprintf("%T", err) != "*errors.joinError": // %w twice is one error
		return []error{err}
	}
	var list []error
	for _, one := range joined.Unwrap() {
		list = append(list, flatten(one)...)
	}
	return list
}

// missing reports whether runs may be missing because of one of the errors: a
// foreign socket hides none.
func missing(err error) bool {
	for _, one := range flatten(err) {
		if !foreign(one) {
			return true
		}
	}
	return false
}

// shortestPrefix is how much of a run id must be given at least: less is
// nearly always ambiguous, or a mistake.
const shortestPrefix = 4

// prefixOf is the beginning of an id as a person typed it, with "run_".
func prefixOf(typed string) string {
	prefix := strings.ToLower(strings.TrimSpace(typed))
	if !strings.HasPrefix(prefix, "run_") {
		prefix = "run_" + prefix
	}
	return prefix
}

// lastOf is an id behind all that begin like this, for lists that go from the
// newest to the oldest: ids sort as their texts do. ok is false for a text with
// which no id begins, or that is too short.
func lastOf(prefix string) (id belay.RunID, ok bool) {
	const length = len("run_") + 26
	if len(prefix) < len("run_")+shortestPrefix || len(prefix) > length {
		return id, false
	}
	id, err := belay.ParseRunID(prefix + strings.Repeat("z", length-len(prefix)))
	if err == nil && len(prefix) == length {
		return next(id), true
	}
	return id, err == nil
}

// next is the id after this one.
func next(id belay.RunID) belay.RunID {
	for i := range slices.Backward(id[:]) {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// find resolves what a person typed to a run among those that are known: an
// id, or a beginning of one that fits no other, with or without "run_".
// Unknown is exit code 4, ambiguous 2 with the candidates.
func find(known []belay.Info, typed string) (belay.Info, error) {
	prefix := prefixOf(typed)
	var hits []belay.Info
	for _, i := range known {
		if strings.HasPrefix(i.ID.String(), prefix) {
			hits = append(hits, i)
		}
	}
	switch {
	case len(prefix) < len("run_")+shortestPrefix:
		return belay.Info{}, usagef("%q is too short for a run id; give at least %d characters after \"run_\" (see \"belay ps\")", typed, shortestPrefix)
	case len(hits) == 1:
		return hits[0], nil
	case len(hits) == 0:
		return belay.Info{}, exitErrorf(ExitNothing, "%w: %.64q (see \"belay ps --all\")", belay.ErrNotFound, typed)
	}
	return belay.Info{}, several(typed, hits)
}

// several is the error of a name that fits several runs: it names them.
func several(typed string, hits []belay.Info) error {
	const most = 5
	mixed := slices.ContainsFunc(hits, func(i belay.Info) bool { return i.Owner != hits[0].Owner })
	var names []string
	for n, h := range hits {
		if n == most {
			names = append(names, fmt.Sprintf("and %d more", len(hits)-most))
			break
		}
		name := h.ID.String() + " " + title(h.Name, h.Kind, h.Server)
		if mixed && h.Owner != "" {
			name += " of " + oneLine(h.Owner)
		}
		names = append(names, name)
	}
	return exitErrorf(ExitUsage, "%.64q %w: %s", typed, belay.ErrAmbiguous, strings.Join(names, ", "))
}

// foreign reports whether err is about a socket that is no Belay's.
func foreign(err error) bool {
	s, ok := errors.AsType[*local.SocketError](err)
	return ok && s.Foreign
}
