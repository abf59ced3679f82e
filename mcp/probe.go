package mcp

import (
	"runtime/debug"
	"strconv"

	"github.com/belayhq/belay/jsonrpc"
)

// ModernParams are the parameters of a modern request of Belay's own that has
// no others: its _meta (MCP-57).
func ModernParams() []byte { return ModernParamsWith("{}") }

// ModernParamsWith is ModernParams of a client with these capabilities, as JSON.
func ModernParamsWith(capabilities string) []byte {
	return []byte(`{"_meta":{"` + metaVersion + `":"` + Revision26 + `",` + metaSelf + `,"` + metaCapabilities + `":` + capabilities + `}}`)
}

// metaSelf is the member of _meta that says who asks, in requests of Belay's
// own (MCP-57).
var metaSelf = `"io.modelcontextprotocol/clientInfo":{"name":"belay","version":` + buildVersion() + `}`

// buildVersion is the version of the module that was built, as a JSON string.
func buildVersion() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	return string(jsonrpc.AppendString(nil, version))
}

// SpeaksModern reports whether the answer to a [MethodDiscover] is that of a
// server of the modern era: a result, or one of the errors that only such a
// server knows (MCP-69).
func (m *Message) SpeaksModern() bool {
	if !m.IsError() {
		versions, ok, _ := jsonrpc.Member(m.Frame, m.Result, "supportedVersions")
		return ok && jsonrpc.KindAt(m.Frame, versions) == jsonrpc.ArrayValue
	}
	code, ok := m.ErrorCode()
	return ok && code <= CodeHeaderMismatch && code >= CodeVersionUnknown
}

// ErrorCode is the code of an error response; false if there is none that is a
// whole number.
func (m *Message) ErrorCode() (int, bool) {
	at, ok, _ := jsonrpc.Member(m.Frame, m.Error, "code")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(at.Of(m.Frame)))
	return n, err == nil
}
