package worker

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/script"
)

// What a worker with Options.Test says and hears in _meta: the calls of test functions
// of a tool ([script.TestCall]), in tools/list; and that a tools/call is one of them
// ([script.Rehearsal]). A worker without it does neither.
const (
	MetaTests = "io.github.belayhq/tests"
	MetaTest  = "io.github.belayhq/test"
)

func (w *Worker) testMeta(tool *script.Tool) mcp.Meta {
	if !w.o.Test {
		return nil
	}
	return mcp.Meta{MetaTests: tool.Tests()}
}

// rehearsal is what a call says about being a test; nil: it is a real one.
func (w *Worker) rehearsal(req *mcp.CallToolRequest) *script.Rehearsal {
	said, ok := req.Params.Meta[MetaTest]
	if !ok || !w.o.Test {
		return nil
	}
	r := new(script.Rehearsal)
	text, err := json.Marshal(said)
	if err != nil || json.Unmarshal(text, r) != nil {
		return nil
	}
	return r
}
