package mcp

// Methods and notifications that a gateway has to know. All others pass.
const (
	MethodInitialize   = "initialize"
	MethodDiscover     = "server/discover"
	MethodPing         = "ping"
	MethodGetPrompt    = "prompts/get"
	MethodReadResource = "resources/read"
	MethodComplete     = "completion/complete"
	MethodCallTool     = "tools/call"
	MethodListTools    = "tools/list"
	MethodSetLevel     = "logging/setLevel"
	MethodSubscribe    = "resources/subscribe"
	MethodUnsubscribe  = "resources/unsubscribe"
	MethodListRoots    = "roots/list"
	MethodSampling     = "sampling/createMessage"
	MethodElicitation  = "elicitation/create"
	MethodListen       = "subscriptions/listen"
	MethodCancelTask   = "tasks/cancel"
	MethodGetTask      = "tasks/get"
	MethodTaskResult   = "tasks/result"
	MethodUpdateTask   = "tasks/update"
	MethodListTasks    = "tasks/list"
	NoticeCancelled    = "notifications/cancelled"
	NoticeInitialized  = "notifications/initialized"
	NoticeProgress     = "notifications/progress"
	NoticeLog          = "notifications/message"
	NoticeTools        = "notifications/tools/list_changed"
	NoticeRoots        = "notifications/roots/list_changed"
	NoticeTaskStatus   = "notifications/tasks/status" // 2025-11-25
	NoticeTask         = "notifications/tasks"        // of the extension
	metaVersion        = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities   = "io.modelcontextprotocol/clientCapabilities"
	metaServerInfo     = "io.modelcontextprotocol/serverInfo"
	metaSubscription   = "io.modelcontextprotocol/subscriptionId"
	metaRelatedTask    = "io.modelcontextprotocol/related-task"
	extTasks           = "io.modelcontextprotocol/tasks"
	metaProgressToken  = "progressToken"
	CodeHeaderMismatch = -32020 // headers and body differ (MCP-60)
	CodeCapability     = -32021 // the caller lacks a capability (MCP-62)
	CodeVersionUnknown = -32022 // a protocol version that is not served (MCP-58)
	CodeInvalidParams  = -32602
	CodeInvalidRequest = -32600
	CodeInternal       = -32603
	CodeMethodNotFound = -32601
)

// Revision26 is the first revision of the modern era.
const Revision26 = "2026-07-28"

// Era is one of the two ways of speaking the protocol.
type Era uint8

// The eras.
const (
	Legacy Era = iota // opened by initialize: 2024-11-05 … 2025-11-25
	Modern            // a version in the _meta of every request: 2026-07-28
)

// String names the era for logs.
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// Handshaking reports whether method opens a connection. Such a request is
// never cancelled (MCP-7, MCP-G14) and is no run.
func Handshaking(method string) bool {
	return method == MethodInitialize || method == MethodDiscover
}

// Standing reports whether a request of this method stays open for as long as
// the caller likes and does no work of its own. Nobody has to wait for it.
func Standing(method string) bool { return method == MethodListen }
