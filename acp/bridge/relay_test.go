package bridge

import (
	"regexp"
	"testing"
)

var runID = regexp.MustCompile(`run_[a-z0-9]{26}`)

// ACP-B2, acceptance 5: ids aside every line passes as it came.
func TestACP_B2_LinesPassAsTheyCame(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.greet("1")
		r.editor.say(`{ "params" : {"n":1.5,"big":1152921504606846976, "x":{"é":"\u00e9","a":null} }, "method":"_mine/thing", "id":1152921504606846976, "extra": [1,  2], "jsonrpc":"2.0"}`)
		r.agent.hears(`{ "params" : {"n":1.5,"big":1152921504606846976, "x":{"é":"\u00e9","a":null} }, "method":"_mine/thing", "id":"b-2", "extra": [1,  2], "jsonrpc":"2.0"}`)
		r.agent.say(`{"result":{"deep":[1.50,2e3,{"_meta":{"k":1}}]}, "id":"b-2","jsonrpc":"2.0", "more":1}`)
		r.editor.hears(`{"result":{"deep":[1.50,2e3,{"_meta":{"k":1}}]}, "id":1152921504606846976,"jsonrpc":"2.0", "more":1}`)
		r.agent.say(`{"jsonrpc":"2.0","method":"_theirs/notice","params":[1.0]}`)
		r.editor.hears(`{"jsonrpc":"2.0","method":"_theirs/notice","params":[1.0]}`)
		r.agent.say(`{"jsonrpc":"2.0","id":1.50,"method":"_theirs/ask","params":{"sessionId":"s_9"}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":"b-1","method":"_theirs/ask","params":{"sessionId":"s_9"}}`)
		r.editor.say(`{"jsonrpc":"2.0","id":"b-1","error":{"code":-32601,"message":"no","data":{"x":1.0}}}`)
		r.agent.hears(`{"jsonrpc":"2.0","id":1.50,"error":{"code":-32601,"message":"no","data":{"x":1.0}}}`)
	})
}

func TestACP_B9_ATurnWithATool(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.turn()
		update := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"tool_call","toolCallId":"tc_1","title":"make test","status":"in_progress"}}}`
		r.agent.say(update)
		r.editor.hears(update)
		if d := r.run("call"); d.Name != "make test" || d.Labels["tool_call_id"] != "tc_1" || d.Parent != r.run("turn").ID {
			t.Errorf("%+v", d)
		}
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"end_turn"}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":9,"result":{"stopReason":"end_turn"}}`)
		if d := r.run("turn"); d.Outcome != "completed" || !d.Over() || d.Parent != r.run("session").ID {
			t.Errorf("%+v", d)
		}
	})
}

func TestACP_B15_OneStop(t *testing.T) {
	bubble(t, Options{}, func(r *rig) {
		r.turn()
		r.editor.say(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_7"}}`)
		r.agent.hears(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_7"}}`)
		r.agent.say(`{"jsonrpc":"2.0","id":"b-3","result":{"stopReason":"cancelled"}}`)
		r.editor.hears(`{"jsonrpc":"2.0","id":9,"result":{"stopReason":"cancelled"}}`)
		if d := r.run("turn"); d.Outcome != "cancelled" || d.Receipt.Verdict != "acknowledged" {
			t.Errorf("%+v", d)
		}
	})
}
