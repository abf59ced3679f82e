package metrics

import "github.com/belayhq/belay"

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

// servers gives names of servers their label values. Its methods need
// Metrics.mu.
type servers struct {
	known   func(string) bool
	names   []string // by id; 0 is "other"
	ids     map[string]uint16
	unknown map[string]struct{} // names that known did not accept, until it is asked again
}

func newServers(known func(string) bool) *servers {
	return &servers{known: known, names: []string{other, ""}, ids: map[string]uint16{"": 1}, unknown: map[string]struct{}{}}
}

// Bounds of what even a function that accepts every name, or none, can fill.
const (
	maxKnown   = 10_000
	maxUnknown = 1024
)

func (s *servers) id(name string) uint16 {
	if id, ok := s.ids[name]; ok {
		return id
	}
	if !s.accepts(name) {
		return 0
	}
	id := uint16(len(s.names))
	s.names, s.ids[name] = append(s.names, name), id
	return id
}

func (s *servers) accepts(name string) bool {
	if s.known == nil {
		return len(s.names) < maxServers+2
	}
	if _, ok := s.unknown[name]; ok || len(s.names) >= maxKnown {
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
