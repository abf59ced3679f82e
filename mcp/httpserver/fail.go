package httpserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// JSON-RPC codes of this transport's own errors.
const (
	codeParse          = jsonrpc.CodeParseError
	codeInvalidRequest = mcp.CodeInvalidRequest
	codeInvalidParams  = -32602
	codeInternal       = mcp.CodeInternal
	codeHeader         = -32020 // headers and body differ (MCP-60)
	codeCapability     = -32021 // a client capability is missing (MCP-62)
	codeVersion        = mcp.CodeVersionUnknown
)

// failure is a refusal: an HTTP status with a JSON-RPC error in the body, since
// a status without such a body ends whole sessions of some clients (MCP-G10).
type failure struct {
	status int
	code   int
	text   string
	data   []byte
	id     jsonrpc.ID // of the message, as far as it could be read
}

func fail(status, code int, id jsonrpc.ID, format string, args ...any) *failure {
	return &failure{status: status, code: code, id: id, text: fmt.Sprintf(format, args...)}
}

// frame is the failure as a JSON-RPC response.
func (f *failure) frame() []byte { return jsonrpc.AppendError(nil, f.id, f.code, f.text, f.data) }

func refuse(w http.ResponseWriter, f *failure) {
	_ = writeJSON(w, f.status, f.frame()) // who has left needs no refusal
}

// notAllowed answers a method that this path does not have.
func notAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	turnAway(w, &failure{status: http.StatusMethodNotAllowed, code: codeInvalidRequest, text: "this method is not served here; allowed: " + allow})
}

// unopened turns a Backend's error into a refusal. A legacy caller reads the
// versions in an ordinary error of initialize: with a 4xx its library would go
// looking for an older transport instead of showing it (MCP-G4).
func (h *Handler) unopened(err error, id jsonrpc.ID, era mcp.Era, asked string) *failure {
	var unserved *EraError
	switch {
	case errors.As(err, &unserved) && era == mcp.Modern:
		return versionFailure(id, unserved.Supported, asked)
	case errors.As(err, &unserved):
		f := fail(http.StatusOK, codeInvalidParams, id, "Unsupported protocol version: %v", unserved)
		f.data = versionData(unserved.Supported, asked)
		return f
	case errors.Is(err, ErrEra):
		return fail(http.StatusBadRequest, codeInvalidRequest, id, "%v", err)
	case errors.Is(err, ErrBusy):
		return fail(http.StatusServiceUnavailable, codeInternal, id, "%v", err)
	}
	return fail(http.StatusBadGateway, codeInternal, id, "the server cannot be reached: %s", belay.CleanReason(err.Error()))
}

// versionFailure says that a version is not served, and which are (MCP-58).
func versionFailure(id jsonrpc.ID, supported []string, asked string) *failure {
	f := fail(http.StatusBadRequest, codeVersion, id, "protocol version %s is not served", asked)
	f.data = versionData(supported, asked)
	return f
}

func versionData(supported []string, asked string) []byte {
	if supported == nil {
		supported = []string{}
	}
	data, _ := json.Marshal(struct { //nolint:errchkjson // strings always marshal
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}{supported, asked})
	return data
}

// statusOf is the HTTP status of a modern answer that is the first thing sent
// (MCP-57, MCP-58, MCP-60, MCP-62): 200 for results and ordinary errors.
func statusOf(frame []byte) int {
	switch errorCode(frame) {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case codeInvalidParams, codeHeader, codeCapability, codeVersion, codeParse, codeInvalidRequest:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
