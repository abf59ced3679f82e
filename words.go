package belay

// Kind says what sort of work a run is.
type Kind string

// The kinds of run.
const (
	KindSession Kind = "session" // a connection or conversation that other runs hang below
	KindTurn    Kind = "turn"    // one prompt turn of an agent
	KindCall    Kind = "call"    // one tool call or other request
	KindTask    Kind = "task"    // a protocol's own long-running task
	KindScript  Kind = "script"  // one execution of a scripted tool
	KindProcess Kind = "process" // one command with all its descendants
)

// Outcome is what the caller was told. It changes once.
type Outcome string

// The outcomes. All but Pending are terminal.
const (
	Pending   Outcome = "pending"
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Declined  Outcome = "declined"
	Lost      Outcome = "lost"
)

// Terminal reports whether the outcome is final.
func (o Outcome) Terminal() bool { return o != Pending && o != "" }

// Work is what the tool is really doing.
type Work string

// The states of the work behind a run.
const (
	Waiting     Work = "waiting"     // registered; held back by an approval or a queue
	Running     Work = "running"     // dispatched
	Stopping    Work = "stopping"    // cancelled; the ladder is being climbed
	Stopped     Work = "stopped"     // over, by its own end or on evidence
	Unconfirmed Work = "unconfirmed" // Belay gave up waiting for evidence
)

// Cause is why a run was cancelled (DESIGN, names and numbers).
type Cause string

// The causes.
const (
	CauseUser       Cause = "user"       // the run's own caller or owner, by any door
	CauseOperator   Cause = "operator"   // another principal
	CauseParent     Cause = "parent"     // the run above was stopped
	CauseDeadline   Cause = "deadline"   // its time was up
	CauseDisconnect Cause = "disconnect" // the caller went away
	CauseShutdown   Cause = "shutdown"   // Belay itself is ending
	CausePeer       Cause = "peer"       // in the library: the other end of the connection
)

// Verdict is the one word a receipt ends in.
type Verdict string

// The verdicts, from the strongest to the weakest.
const (
	Confirmed    Verdict = "confirmed"    // Belay's own evidence that the work is over, within the scope
	Acknowledged Verdict = "acknowledged" // the tool said that it is over
	Signalled    Verdict = "signalled"    // told, and nothing that proves anything
	Unreachable  Verdict = "unreachable"  // could not even be told
)

// Scope says how far a proof reaches.
type Scope string

// The scopes of evidence.
const (
	ScopeHandler   Scope = "handler"    // the code that did the work has returned
	ScopeLocalTree Scope = "local-tree" // every process of the local tree is gone
	ScopeRemote    Scope = "remote"     // only the local end is known; the work itself is elsewhere
	ScopeHook      Scope = "hook"       // the operator's own check says so: as good as the check is (DESIGN 11, 6)
)

// Means is how a step was carried out or what was seen.
type Means string

// The steps of a receipt's timeline.
const (
	StepRequested Means = "requested"   // the Stop was accepted
	StepTold      Means = "told"        // the backend's own cancel was delivered
	StepInterrupt Means = "interrupt"   // an interpreter or handler was interrupted
	StepHeld      Means = "held"        // force was held back, and why
	StepTerminate Means = "terminate"   // asked to end by force (stdin closed, SIGTERM)
	StepKill      Means = "kill"        // killed
	StepEscalated Means = "escalated"   // a person pressed Stop again
	StepEvidence  Means = "evidence"    // something was seen
	StepGaveUp    Means = "unconfirmed" // no evidence in time
	StepLate      Means = "late"        // a result came after the caller was settled
)

// EvidenceKind says what was seen.
type EvidenceKind string

// What can be seen.
const (
	SeenNotStarted      EvidenceKind = "not_started"      // the work was never dispatched
	SeenProcessGone     EvidenceKind = "process_gone"     // every process of the work was seen dead
	SeenHandlerReturned EvidenceKind = "handler_returned" // the handler was seen to return
	SeenInterrupted     EvidenceKind = "interrupted"      // the interpreter was seen interrupted
	SeenHookGone        EvidenceKind = "hook_gone"        // a configured check that had found the work alive finds it gone
	SeenResult          EvidenceKind = "result"           // the tool sent its result after the Stop
	SeenErrorReply      EvidenceKind = "error_reply"      // the tool sent an error after the Stop
	SeenTaskCancelled   EvidenceKind = "task_cancelled"   // the tool reports its task as cancelled
	SeenStillActive     EvidenceKind = "still_active"     // progress or log after the Stop: it goes on
	SeenUnlinked        EvidenceKind = "unlinked"         // nothing ties it to earlier or later rounds of the same request (MCP-G18)
	SeenSurvivors       EvidenceKind = "survivors"        // processes of the work are still alive
)
