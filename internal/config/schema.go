package config

import "time"

// Tags of the fields: key is the name in the file; default is what holds when
// nobody says anything; enum lists the values that there are; min is the least
// value, above the value that it must exceed; secret keeps values out of
// messages; path makes a file's name absolute.

// file is belay.yaml.
type file struct {
	Listen   Option[string] `key:"listen" default:"127.0.0.1:7474"`
	Log      Option[string] `key:"log" default:"info" enum:"debug,info,warn,error,off"`
	Defaults Policy         `key:"defaults"`
	Servers  serverList     `key:"servers"`

	Settings
}

// Server is one server, with everything said about it.
type Server struct {
	// Name is how it is reached: /mcp/NAME.
	Name string
	// Source is the file that named it, for people.
	Source string

	// Command is the program and its arguments; empty for a server with a URL.
	Command   commandLine       `key:"command" secret:"value"`
	Args      []string          `key:"args" secret:"value"`
	Env       map[string]string `key:"env" secret:"value"` // added to Belay's own
	Dir       string            `key:"cwd"`                // absolute; empty: Belay's own
	URL       string            `key:"url" secret:"value"`
	Headers   map[string]string `key:"headers" secret:"value"`
	Transport Option[string]    `key:"transport" default:"auto" enum:"auto,streamable,sse"`

	// RAP is a tool server of the Reactive Agent Protocol, whose tools are served as
	// those of MCP servers are; nil: it is none.
	RAP *RAPServer `key:"rap"`

	// Scripts are tools written for the Scripting app, which Belay runs itself; nil:
	// it has none.
	Scripts *Scripts `key:"scripts"`

	Policy

	// Tools are complete, too: what a tool does not say is its server's.
	Tools map[string]ToolPolicy `key:"tools"`
}

// Policy is how the calls of a server are served and stopped.
type Policy struct {
	ToolPolicy

	Isolation    Option[string]        `key:"isolation" default:"shared" enum:"shared,call"`
	Restart      Option[string]        `key:"restart" default:"known" enum:"known,safe,drain"`
	Drain        Option[time.Duration] `key:"drain" default:"30s" above:"0s"`
	Disconnect   Option[Disconnect]    `key:"disconnect" default:"detach"`
	MaxProcesses Option[int]           `key:"max_processes" default:"16" min:"1"`
	Spares       Option[int]           `key:"spares" min:"0"`  // unsaid: see [Scripts]; else none
	AtOnce       Option[int]           `key:"at_once" min:"0"` // 0: any number; unsaid: see [Scripts]; else 0
	Idle         Option[time.Duration] `key:"idle" default:"10m" above:"0s"`
	Labels       map[string]string     `key:"labels"`
	Spare        []SpareRule           `key:"spare"`
}

// ToolPolicy is the part of a policy that a single tool may have for itself.
type ToolPolicy struct {
	Enforce   Option[string]        `key:"enforce" default:"auto" enum:"auto,strict,lenient,never"`
	Grace     Option[time.Duration] `key:"grace" default:"2s" above:"0s"`
	KillAfter Option[time.Duration] `key:"kill_after" default:"3s" above:"0s"`
	Deadline  Option[time.Duration] `key:"deadline" default:"0s" min:"0s"` // 0: none
	Overlap   Option[string]        `key:"overlap" default:"warn" enum:"warn,wait,refuse"`
	Cleanup   Option[string]        `key:"cleanup" default:"normal" enum:"normal,slow"`
	Observe   Option[bool]          `key:"observe" default:"false"`
	Stop      Stop                  `key:"stop"`
}

// Stop holds the hooks for work that Belay did not start (DESIGN 11, 6). Each
// is nil if there is none.
type Stop struct {
	Tell      *Hook `key:"tell"`
	Terminate *Hook `key:"terminate"`
	Kill      *Hook `key:"kill"`
	Alive     *Hook `key:"alive"`
}

// Hook is one thing to do at a Stop: a command or an HTTP request, never both.
type Hook struct {
	Command commandLine           `key:"command" secret:"value"`
	HTTP    *HTTPHook             `key:"http"`
	Timeout Option[time.Duration] `key:"timeout" default:"10s" above:"0s"`
	Yes     []int                 `key:"yes"` // exit codes or statuses; none: see package hook
	No      []int                 `key:"no"`  // for alive only
}

// HTTPHook is a hook that is an HTTP request.
type HTTPHook struct {
	Method  Option[string]    `key:"method" enum:"GET,POST,PUT,PATCH,DELETE,HEAD"` // unsaid: POST, for alive GET
	URL     string            `key:"url" secret:"value"`
	Headers map[string]string `key:"headers" secret:"value"`
	Body    string            `key:"body" secret:"value"`
	Socket  string            `key:"socket"` // a unix socket instead of the URL's host
}

// SpareRule names processes that are not to be harmed: all that it says must
// fit.
type SpareRule struct {
	Comm    string   `key:"comm"` // the program's name or a pattern such as "chrom*"
	Args    []string `key:"args"` // parts of the command line, all of them
	NotArgs []string `key:"not_args"`
	Why     string   `key:"why"`
}

// DisconnectMode says what becomes of a call whose caller's connection broke.
type DisconnectMode string

// The modes (MCP-G15).
const (
	Detach      DisconnectMode = "detach"       // it goes on, and its result waits
	Cancel      DisconnectMode = "cancel"       // it is stopped at once
	CancelAfter DisconnectMode = "cancel-after" // it is stopped if nobody resumes in time
)

// Disconnect is the policy for broken connections.
type Disconnect struct {
	Mode  DisconnectMode
	After time.Duration // for CancelAfter
}

// commandLine is a program with its arguments: a list, or a text whose words
// are found as a shell finds them.
type commandLine []string

// serverList keeps the servers in the order of the file.
type serverList []Server
