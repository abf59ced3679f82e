package rap

// Paths below the base URL of a tool server (RAP-8, RAP-43, RAP-87, RAP-89).
// They are exact: no route of this package matches by prefix or substring.
const (
	PathDiscovery = "/.well-known/rap-toolset"
	PathCancel    = "/cancel_tool_call"
	PathClose     = "/close_thread"
	PathMigrate   = "/migrate"

	// PathInvoke is where a [Handler] takes invocations. Other servers name their
	// own in the manifest.
	PathInvoke = "/invoke"
	// PathChoice is where a [Handler] takes the answers to its choices.
	PathChoice = "/choice"
)

// ContentType is the type of every body (RAP-36).
const ContentType = "application/json"

// Sizes, in bytes where nothing else is said.
const (
	MaxID         = 256      // a group, call or user id
	MaxName       = 128      // a tool, toolset or operation, in characters (RAP-45, RAP-46)
	MaxURL        = 8 << 10  // a callback, response, endpoint or authorisation URL
	MaxNotice     = 64 << 10 // a cancel, a close, a migration, the answer to a choice
	MaxManifest   = 1 << 20
	MaxInvocation = 4 << 20
	MaxMessage    = 16 << 20 // a message to the callback URL; images make them large
	MaxTools      = 4096     // of one toolset
	MaxAncestors  = 1024     // of one thread
	MaxChoices    = 256      // of one question
	MaxItems      = 4096     // of one result's content
)
