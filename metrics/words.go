package metrics

import (
	"sync"

	"github.com/belayhq/belay"
)

// other is the label value of everything outside a closed set.
const other = "other"

// set is a closed set of label values. Its ids are small, so that the state of
// a run in flight fits into a few bytes.
type set[T ~string] struct {
	names []string
	ids   map[T]uint8
}

// setOf makes a set; the id 0 is "other".
func setOf[T ~string](all ...T) set[T] {
	s := set[T]{names: []string{other}, ids: make(map[T]uint8, len(all))}
	for _, v := range all {
		s.ids[v] = uint8(len(s.names))
		s.names = append(s.names, string(v))
	}
	return s
}

func (s *set[T]) id(v T) uint8         { return s.ids[v] }
func (s *set[T]) name(id uint8) string { return s.names[id] }

// label is v itself if it belongs to the set, else "other".
func (s *set[T]) label(v T) string { return s.names[s.ids[v]] }

// words are the closed sets of package belay. A test holds them against its
// constants.
type words struct {
	kinds    set[belay.Kind]
	works    set[belay.Work]
	outcomes set[belay.Outcome]
	causes   set[belay.Cause]
	verdicts set[belay.Verdict]
	steps    set[belay.Means]
	evidence set[belay.EvidenceKind]
	scopes   set[belay.Scope]
}

func allWords() words {
	return words{
		kinds:    setOf(belay.KindSession, belay.KindTurn, belay.KindCall, belay.KindTask, belay.KindScript, belay.KindProcess),
		works:    setOf(belay.Waiting, belay.Running, belay.Stopping, belay.Stopped, belay.Unconfirmed),
		outcomes: setOf(belay.Pending, belay.Completed, belay.Failed, belay.Cancelled, belay.Declined, belay.Lost),
		causes: setOf(belay.CauseUser, belay.CauseOperator, belay.CauseParent, belay.CauseDeadline,
			belay.CauseDisconnect, belay.CauseShutdown, belay.CausePeer),
		verdicts: setOf(belay.Confirmed, belay.Acknowledged, belay.Signalled, belay.Unreachable),
		steps: setOf(belay.StepRequested, belay.StepTold, belay.StepInterrupt, belay.StepHeld, belay.StepTerminate, belay.StepKill,
			belay.StepEscalated, belay.StepEvidence, belay.StepGaveUp, belay.StepLate),
		evidence: setOf(belay.SeenNotStarted, belay.SeenProcessGone, belay.SeenHandlerReturned, belay.SeenInterrupted, belay.SeenHookGone,
			belay.SeenResult, belay.SeenErrorReply, belay.SeenTaskCancelled, belay.SeenStillActive, belay.SeenUnlinked, belay.SeenSurvivors),
		scopes: setOf(belay.Scope("none"), belay.ScopeHandler, belay.ScopeLocalTree, belay.ScopeRemote, belay.ScopeHook),
	}
}

// servers gives names of servers their label values. One goroutine at a time
// calls id; label may be called by any, also under locks that known needs.
type servers struct {
	known   func(string) bool
	unknown map[string]struct{} // names that known did not accept, until it is asked again

	mu    sync.Mutex // not held while known is called
	names []string   // by id; 0 is "other"
	ids   map[string]uint16
}

func newServers(known func(string) bool) *servers {
	return &servers{known: known, names: []string{other, ""}, ids: map[string]uint16{"": 1}, unknown: map[string]struct{}{}}
}

// Bounds of what even a function that accepts every name, or none, can fill.
const (
	maxKnown   = 10_000
	maxUnknown = 1024
)

// id is the id of a name's label value, which it makes where that is allowed.
func (s *servers) id(name string) uint16 {
	id, n := s.find(name)
	if id == 0 && s.accepts(name, n) {
		s.mu.Lock()
		defer s.mu.Unlock()
		id = uint16(len(s.names))
		s.names, s.ids[name] = append(s.names, name), id
	}
	return id
}

// find returns the id of a name, 0 if it has none, and how many there are.
func (s *servers) find(name string) (id uint16, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[name], len(s.names)
}

func (s *servers) accepts(name string, n int) bool {
	if s.known == nil {
		return n < maxServers+2
	}
	if _, ok := s.unknown[name]; ok || n >= maxKnown {
		return false
	}
	if s.known(name) {
		return true
	}
	if len(s.unknown) < maxUnknown {
		s.unknown[name] = struct{}{}
	}
	return false
}

// askAgain has known asked about every name anew: the configuration may have
// changed.
func (s *servers) askAgain() { clear(s.unknown) }

// name is the label value with that id.
func (s *servers) name(id uint16) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[id]
}

// label is the label value of a name, "other" if it has none yet.
func (s *servers) label(name string) string {
	id, _ := s.find(name)
	return s.name(id)
}
