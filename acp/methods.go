package acp

// Methods that cancellation touches, or that somebody who watches a connection
// has to know. All others pass as they are.
const (
	MethodInitialize = "initialize"

	// From the client to the agent.
	MethodAuthenticate    = "authenticate" // v1
	MethodLogin           = "auth/login"   // v2
	MethodNewSession      = "session/new"
	MethodLoadSession     = "session/load" // v1
	MethodResumeSession   = "session/resume"
	MethodForkSession     = "session/fork" // unstable
	MethodListSessions    = "session/list"
	MethodDeleteSession   = "session/delete"
	MethodCloseSession    = "session/close"
	MethodSetMode         = "session/set_mode" // v1
	MethodSetConfigOption = "session/set_config_option"
	MethodPrompt          = "session/prompt"
	MethodCancelToolCall  = "tool_call/cancel" // v2
	MethodCancelTerminal  = "terminal/cancel"  // v2

	// From the agent to the client.
	MethodRequestPermission   = "session/request_permission"
	MethodCreateElicitation   = "elicitation/create"
	MethodReadTextFile        = "fs/read_text_file"      // v1
	MethodWriteTextFile       = "fs/write_text_file"     // v1
	MethodCreateTerminal      = "terminal/create"        // v1
	MethodTerminalOutput      = "terminal/output"        // v1
	MethodWaitForExit         = "terminal/wait_for_exit" // v1
	MethodKillTerminal        = "terminal/kill"          // v1
	MethodReleaseTerminal     = "terminal/release"       // v1
	MethodMessageMCP          = "mcp/message"            // unstable, both directions
	MethodProxyInitialize     = "proxy/initialize"       // unstable
	MethodProxySuccessor      = "proxy/successor"        // unstable, both directions
	NoticeSessionUpdate       = "session/update"         // agent to client
	NoticeSessionCancel       = "session/cancel"         // client to agent
	NoticeCancelRequest       = "$/cancel_request"       // the stabilised form, both directions
	NoticeCancelRequestSeed   = "$/cancelRequest"        // the first form, both directions
	NoticeCompleteElicitation = "elicitation/complete"   // agent to client, unstable
)

// Protocol versions. One holds per connection (ACP-72).
const (
	Version1 = 1 // stable
	Version2 = 2 // draft
)

// StopReason is why a turn has ended: in the answer to session/prompt (v1), or in
// the idle state_update (v2).
type StopReason string

// The stop reasons. Others may come; they are passed on as they are.
const (
	StopEndTurn         StopReason = "end_turn"
	StopMaxTokens       StopReason = "max_tokens"
	StopMaxTurnRequests StopReason = "max_turn_requests"
	StopRefusal         StopReason = "refusal"
	StopCancelled       StopReason = "cancelled"
	StopError           StopReason = "error" // v2 only
)

// Error codes. Compare codes, never the text beside them (ACP-49).
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeCancelled      = -32800 // the request was cancelled (ACP-18, ACP-38)
	CodeAuthRequired   = -32000
	CodeNotFound       = -32002 // a resource, in v2 also a session
	CodeVersion        = -32022 // v2: no version at or below the asked one (ACP-72)
)

// CancelledText is the message beside [CodeCancelled] in what this package
// writes, as the first form has it (ACP-18).
const CancelledText = "Cancelled"

// Outcomes and actions that end a dialog without an answer of the user.
const (
	OutcomeCancelled = "cancelled" // of session/request_permission (ACP-53)
	ActionCancel     = "cancel"    // of elicitation/create (A5)
)

// Handshaking reports whether method opens a connection. Such a request is never
// cancelled, whoever asks (ACP-10).
func Handshaking(method string) bool {
	return method == MethodInitialize || method == MethodProxyInitialize
}

// Dialog reports whether method asks something of the user. When nobody needs the
// answer any more, it has one that says so: see [AppendDismissed].
func Dialog(method string) bool {
	return method == MethodRequestPermission || method == MethodCreateElicitation
}
