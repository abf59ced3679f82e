package acp

import "github.com/belayhq/belay/jsonrpc"

// MaxSession bounds a session id that is read, in bytes.
const MaxSession = 1024

// SessionOf is the sessionId in the params of a request or notification, or in
// the result of one that made a session. It is false when there is none, when it
// is no string, empty, there twice, or longer than [MaxSession].
func SessionOf(value []byte) (string, bool) {
	at, ok, err := jsonrpc.Member(value, whole(value), "sessionId")
	if !ok || err != nil {
		return "", false
	}
	id, err := jsonrpc.ReadString(value, at, MaxSession)
	return id, err == nil && id != ""
}

// StopReasonOf is the stopReason in the result of a v1 session/prompt.
func StopReasonOf(result []byte) (StopReason, bool) {
	at, ok, err := jsonrpc.Member(result, whole(result), "stopReason")
	if !ok || err != nil {
		return "", false
	}
	reason, err := jsonrpc.ReadString(result, at, maxName)
	return StopReason(reason), err == nil
}

// State is what a v2 state_update says: session/update {update:{sessionUpdate:
// "state_update", state, stopReason}} (ACP-67).
type State struct {
	Idle   bool
	Reason StopReason // of an idle state; "" if none is given
	State  string     // running, idle, or what may come
	// Background is the raw list of work that a Stop spares, nil if it is not
	// reported; [] says that there is none (ACP-64).
	Background []byte
}

// StateOf reads the params of a session/update; false if it is no state_update.
func StateOf(params []byte) (State, bool) {
	at, ok, _ := jsonrpc.Member(params, whole(params), "update")
	if !ok {
		return State{}, false
	}
	names := [...]string{"sessionUpdate", "state", "stopReason", "background"}
	var found [4]jsonrpc.Span
	if jsonrpc.Lookup(params, at, names[:], found[:]) != nil {
		return State{}, false
	}
	if kind, err := jsonrpc.ReadString(params, found[0], maxName); err != nil || kind != "state_update" {
		return State{}, false
	}
	var s State
	s.State, _ = jsonrpc.ReadString(params, found[1], maxName)
	s.Idle = s.State == "idle"
	if s.Idle {
		reason, _ := jsonrpc.ReadString(params, found[2], maxName)
		s.Reason = StopReason(reason)
	}
	if jsonrpc.KindAt(params, found[3]) == jsonrpc.ArrayValue {
		s.Background = found[3].Of(params)
	}
	return s, true
}
