package arch

// Row says what the non-test files of one package may import beside the
// standard library. Packages of this module are named by their folder, "." is
// the root, package belay. Everything that is not listed is refused.
type Row struct {
	Package string   // the folder
	Layer   int      // imports go to lower layers only
	May     []string // folders of this module
	Uses    []string // other modules' packages, by prefix of the import path
	Why     string   // the reason for this row
}

// Table is the whole module, from the bottom up (DESIGN, section 4).
var Table = []Row{
	{
		".", 0, nil, nil,
		"the domain and the library that tool authors import: standard library only, knows no protocol",
	},
	{
		"jsonrpc", 0, nil,
		[]string{"github.com/go-json-experiment/json/jsontext"},
		"raw messages; jsontext keeps ids exactly and is part of the standard library from Go 1.27",
	},
	{
		"proc", 0, nil,
		[]string{"golang.org/x/sys"},
		"process trees; what an operating system offers beyond the syscall package",
	},

	{
		"internal/faketool", 0, nil, nil,
		"defective tools for tests and the demo; hand-made JSON, so that it can break the protocol",
	},
	{
		"internal/fakemodel", 0, nil, nil,
		"a model on loopback for real agents under test; knows the interfaces of models and nothing of Belay",
	},
	{
		"internal/sdkfake", 1,
		[]string{"internal/faketool"},
		[]string{"github.com/modelcontextprotocol/go-sdk"},
		"a real server with a witness, for tests",
	},
	{
		"internal/fakeagent", 0, nil, nil,
		"an agent with defects, for tests; hand-made JSON, so that it can break the protocol",
	},
	{
		"internal/seedclient", 0, nil, nil,
		"a client that knows one public page and nothing of Belay, for tests",
	},
	{
		"internal/need", 0, nil, nil,
		"what tests ask of the machine",
	},
	{
		"internal/calm", 0, nil, nil,
		"bounds on wall time in tests, on a machine that others use, too",
	},
	{
		"internal/arch", 0, nil, nil,
		"this table",
	},
	{
		"internal/pinned", 0, nil, nil,
		"installs other people's programs for the commands that drive them",
	},
	{
		"scripts/testcount", 0, nil, nil,
		"runs on a machine on which nothing has been downloaded yet",
	},
	{
		"scripts/testrun", 0, nil, nil,
		"builds every package's tests once and runs them; also on such a machine",
	},
	{
		"scripts/crosscheck", 0, nil, nil,
		"reads the module for other systems; the standard library has the type-checker",
	},

	{
		"internal/wholefile", 0, nil, nil,
		"files that are replaced as a whole: an editor's, the latch, the profiles",
	},
	{
		"internal/memcap", 0, nil, nil,
		"the memory bound of a process by itself: the runtime's numbers and one limit of the kernel",
	},
	{
		"internal/peers", 1,
		[]string{"proc"},
		[]string{"github.com/goccy/go-yaml"},
		"facts about other people's programs, as data; gives proc its spare rules",
	},
	{
		"internal/adopt", 2,
		[]string{"internal/peers", "internal/wholefile"},
		[]string{"github.com/goccy/go-yaml", "github.com/tailscale/hujson", "github.com/rogpeppe/go-internal/diff"},
		"editors' files, edited in place: hujson keeps offsets in JSON with comments, diff shows what would change",
	},

	{
		"mcp", 1,
		[]string{".", "jsonrpc"},
		nil,
		"the MCP dialect; dialects never import each other",
	},
	{
		"mcp/httpclient", 2,
		[]string{"jsonrpc", "mcp"},
		nil,
		"the transport towards servers over HTTP; net/http is enough",
	},
	{
		"mcp/httpserver", 2,
		[]string{".", "jsonrpc", "mcp"},
		nil,
		"the transport towards callers over HTTP; knows streams and headers, neither runs nor servers",
	},
	{
		"auth", 1,
		[]string{"."},
		[]string{"github.com/golang-jwt/jwt/v5", "golang.org/x/time/rate"},
		"who may do what; knows requests and principals, neither routes nor protocols",
	},
	{
		"stopack", 2,
		nil,
		[]string{"github.com/modelcontextprotocol/go-sdk"},
		"for authors of servers: the official SDK says when a handler has returned; needs nothing of Belay",
	},
	{
		"script/worker", 3,
		[]string{"script", "stopack"},
		[]string{"github.com/modelcontextprotocol/go-sdk", "github.com/fsnotify/fsnotify"},
		"scripts as a stdio server, by the official SDK, so that the gateway's isolation and ladder hold for them; fsnotify says when their files change",
	},
	{
		"script/lint", 2,
		[]string{"script"},
		[]string{"github.com/dop251/goja/ast", "github.com/dop251/goja/file", "github.com/dop251/goja/parser"},
		"reads bundles as the engine does, by its own parser; apart, so that the host stays small",
	},
	{
		"script/types", 0, nil, nil,
		"declarations for editors and compilers: text, and how it is written",
	},
	{
		"internal/builtin", 3,
		[]string{"stopack"},
		[]string{"github.com/modelcontextprotocol/go-sdk"},
		"Belay's own demonstration tools, served by the official SDK",
	},
	{
		"hook", 2,
		[]string{".", "jsonrpc", "proc"},
		nil,
		"stops work that Belay did not start; runs commands as trees, reads arguments without decoding them",
	},
	{
		"supervise", 2,
		[]string{".", "proc", "internal/peers"},
		nil,
		"where a process tree becomes a run's stopper: the only place that knows both",
	},

	{
		"ledger", 3,
		[]string{"."},
		[]string{"modernc.org/sqlite", "golang.org/x/sys"},
		"ended runs and receipts in a file: the only package that imports SQLite; x/sys locks the file",
	},
	{
		"local", 3,
		[]string{".", "jsonrpc"},
		[]string{"golang.org/x/sys"},
		"Control over all Belay processes of this user; peer credentials of a socket need x/sys",
	},
	{
		"gateway", 3,
		[]string{".", "hook", "jsonrpc", "mcp", "mcp/httpclient", "proc", "supervise", "internal/peers"},
		nil,
		"routes, registers, pumps; everything below it meets here",
	},

	{
		"acp", 1,
		[]string{".", "jsonrpc"},
		nil,
		"the ACP dialect and its library for authors of agents and editors: nothing heavy may hang on it",
	},
	{
		"acp/bridge", 2,
		[]string{".", "jsonrpc", "acp"},
		nil,
		"between an editor and its agent; processes and MCP servers come in through two interfaces, so that it can be tested without either",
	},

	{
		"internal/egress", 0, nil, nil,
		"which addresses that others have named may be connected to: one table for webhooks and callbacks",
	},
	{
		"rap", 1,
		[]string{".", "jsonrpc", "internal/egress"},
		nil,
		"the RAP dialect and its library for authors of tool servers and runtimes: nothing heavy may hang on it",
	},
	{
		"rap/schema", 1,
		[]string{"."},
		[]string{"github.com/google/jsonschema-go"},
		"arguments against JSON Schema; apart, so that rap stays light",
	},
	{
		"rap/sigv4", 2,
		[]string{".", "rap"},
		[]string{"github.com/aws/aws-sdk-go-v2/aws"},
		"AWS signatures, both ways: the SDK's own signer, which alone knows the canonical form; apart, so that rap stays light",
	},

	{"examples/rap", 6, nil, nil, "tests only: runs the three commands below it as processes"},
	{"examples/rap/toolserver", 2, []string{".", "proc", "rap", "rap/schema"}, nil, "what an author of a tool server writes: the library, and proc for commands"},
	{"examples/rap/runtime", 2, []string{".", "rap"}, nil, "what an author of a runtime writes"},
	{"examples/rap/notifier", 2, []string{"rap"}, nil, "what the author of another runtime needs"},
	{"examples/acp", 6, nil, nil, "tests only: runs the three commands below it as processes"},
	{"examples/acp/agent", 2, []string{"acp"}, nil, "what an author of an agent writes: the library and nothing else"},
	{"examples/acp/client", 2, []string{"acp"}, nil, "what an author of an editor writes"},
	{"examples/acp/proxy", 2, []string{"acp"}, nil, "both ends at once"},
	{
		"script", 1,
		[]string{"."},
		[]string{"github.com/dop251/goja", "github.com/evanw/esbuild/pkg/api", "github.com/nlnwa/whatwg-url/url", "github.com/rogpeppe/go-internal/diff", "golang.org/x/text/unicode/rangetable"},
		"the AssistantTool host: the only package that imports the JavaScript engine and the compiler; addresses are read as the URL standard says, diff shows what a tool of the editor would change; rangetable puts Unicode's properties together",
	},

	{
		"script/examples", 0, nil, nil,
		"scripts as data, unpacked for whoever serves them; needs neither the host nor the engine",
	},
	{
		"lease", 2,
		[]string{".", "internal/egress"},
		nil,
		"runs of other people's runtimes: leases, reports and webhooks; knows no door",
	},
	{
		"metrics", 3,
		[]string{"."},
		[]string{"github.com/prometheus/client_golang/prometheus"},
		"counts what happens to the runs of a Control: the only package that imports Prometheus",
	},
	{
		"tracing", 3,
		[]string{"."},
		[]string{"google.golang.org/protobuf/encoding/protowire"},
		"runs become spans; OTLP is written by hand on protowire, for the official exporter brings gRPC along",
	},

	{
		"admin", 3,
		[]string{".", "auth", "lease"},
		[]string{"github.com/danielgtaylor/huma/v2", "github.com/go-json-experiment/json/jsontext"},
		"the REST door over a Control; auth for its rates alone: who asks, what is remembered and who is told are handed in; huma describes /v1, jsontext refuses what two readers would read differently",
	},
	{
		"admin/client", 1,
		[]string{"."},
		nil,
		"the other end of the REST door: authors of other runtimes import it, so it needs nothing but the domain",
	},
	{
		"aggregate", 3,
		[]string{".", "jsonrpc", "mcp", "mcp/httpserver"},
		nil,
		"several servers as one: a backend made of backends, so that it knows no server itself",
	},
	{
		"internal/config", 3,
		[]string{"auth", "hook"},
		[]string{"github.com/goccy/go-yaml", "github.com/go-json-experiment/json/jsontext"},
		"files become servers; places in YAML and JSON are what its messages are about",
	},
	{
		"internal/rapdoor", 4,
		[]string{".", "jsonrpc", "mcp", "mcp/httpserver", "rap", "rap/schema"},
		nil,
		"MCP servers as toolsets of another protocol: a client of the same backends that the MCP endpoints have, so that it knows no gateway",
	},
	{
		"serve", 4,
		[]string{".", "jsonrpc", "mcp", "mcp/httpclient", "mcp/httpserver", "aggregate", "proc", "hook", "gateway", "internal/config", "internal/peers", "internal/egress", "internal/raptools", "rap", "rap/sigv4", "rap/spawn", "script", "internal/memcap"},
		nil,
		"the hub: the one place where the transport towards callers and the gateway meet; tool servers of the other protocol become servers inside it here",
	},
	{
		"rap/spawn", 3,
		[]string{".", "proc", "rap", "supervise", "internal/peers"},
		nil,
		"tool servers that Belay starts: where a process tree becomes the runtime's server",
	},
	{
		"internal/raptools", 2,
		[]string{".", "jsonrpc", "mcp", "rap"},
		nil,
		"the joint of two dialects that never import each other: a tool server's tools as those of an MCP server inside Belay",
	},
	{
		"internal/rappeer", 0, nil, nil,
		"both ends of the protocol, written from its page alone, for tests",
	},
	{
		"acp/agent", 3,
		[]string{".", "proc", "supervise", "internal/peers"},
		nil,
		"which process of an agent belongs to which turn and tool call; knows runs and processes, not the protocol",
	},
	{
		"acp/front", 5,
		[]string{".", "acp/bridge", "gateway", "internal/config", "internal/peers", "jsonrpc", "local", "mcp/httpserver", "serve"},
		nil,
		"the MCP servers of an editor's session behind Belay: where the bridge, the gateway and the processes of one user meet",
	},
	{
		"node", 5,
		[]string{".", "admin", "auth", "lease", "ledger", "local", "mcp/httpserver", "metrics", "serve", "tracing", "internal/wholefile", "rap", "rap/sigv4", "internal/egress", "internal/rapdoor"},
		nil,
		"one server for several people: the joints between the hub, the admin API, the ledger and who may do what",
	},
	{
		"internal/cli", 6,
		[]string{".", "acp", "acp/agent", "acp/bridge", "acp/front", "admin", "admin/client", "auth", "lease", "ledger", "node", "proc", "supervise", "internal/peers", "internal/config", "mcp", "jsonrpc", "local", "gateway", "rap", "rap/sigv4", "serve", "tracing", "internal/adopt", "internal/builtin", "internal/demo", "internal/egress", "internal/faketool", "internal/memcap", "internal/wholefile", "script", "script/examples", "script/lint", "script/types", "script/worker"},
		[]string{"github.com/alecthomas/kong", "github.com/fsnotify/fsnotify", "golang.org/x/sys"},
		"the commands; kong reads the command line, x/sys knows the terminal's foreground group",
	},
	{
		"internal/demo", 4,
		[]string{".", "proc", "jsonrpc", "mcp", "supervise", "gateway", "local", "internal/faketool"},
		nil,
		"the scenes of belay demo",
	},
	{
		"cmd/belay", 7,
		[]string{"internal/cli", "proc", "internal/faketool"},
		nil,
		"main: a dozen lines; proc and faketool because a guardian and a fake are this binary again",
	},

	{
		"acceptance", 6, nil, nil,
		"tests only: drives the built binary with clients and tools",
	},
	{
		"bench", 6,
		[]string{".", "admin", "auth", "rap", "internal/faketool", "internal/pinned", "internal/sdkfake"},
		[]string{"github.com/modelcontextprotocol/go-sdk"},
		"drives the built binary from outside; makes tokens for it, lists more runs through the admin handler than it could have started, and is the runtime whose calls of tool servers it measures",
	},
	{
		"interop", 6,
		[]string{"acp", "internal/fakemodel", "internal/faketool", "internal/pinned", "stopack"},
		[]string{"github.com/modelcontextprotocol/go-sdk"},
		"drives the built binary with other people's clients, servers and agents",
	},
	{
		"conformance", 6,
		[]string{"internal/pinned"},
		nil,
		"drives the built binary with the official suite; everything else is a process of its own",
	},
}

// TestOnly lists other modules' packages that any package's tests may import
// beside those of its row.
var TestOnly = []string{
	"github.com/google/go-cmp",
	"github.com/google/jsonschema-go", // answers are compared with the description that is served
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
	"golang.org/x/sys",
	"pgregory.net/rapid",
	"github.com/prometheus/client_model", // reads what metrics wrote
	"go.opentelemetry.io/proto/otlp",     // reads what tracing wrote
	"google.golang.org/protobuf",
	"github.com/coder/websocket",             // a transport that the libraries are tested on
	"github.com/modelcontextprotocol/go-sdk", // an official peer, in tests of the borders
}
