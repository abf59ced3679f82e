package acp

import (
	"bytes"
	"strconv"

	"github.com/belayhq/belay/jsonrpc"
)

// Flag is what a peer says about being sent cancels of single requests.
type Flag uint8

// The values of a flag.
const (
	FlagAbsent Flag = iota // not a word about it
	FlagFalse              // it does not want them
	FlagTrue               // it handles them
)

// String names the flag for logs.
func (f Flag) String() string {
	switch f {
	case FlagFalse:
		return "false"
	case FlagTrue:
		return "true"
	case FlagAbsent:
	}
	return "absent"
}

const maxName = 256

// Hello is what a peer says about itself in initialize: a client in the params,
// an agent in the result.
type Hello struct {
	Version int    // protocolVersion, 0 if it is none
	Name    string // of the program, "" if it is not given; bounded to 256 bytes
	Cancel  Flag   // whether it handles cancels of single requests
	Used    bool   // it has the field cancellation, whatever is in it (ACP-49)
	Close   bool   // an agent that takes session/close (ACP-59, ACP-71)
	Caps    []byte // its capabilities, raw; aliases what was read; nil if there are none
}

// ReadHello reads the params (of a client) or the result (of an agent) of
// initialize. It takes what it finds; what is missing or of a wrong type stays
// zero, for it is not for this package to refuse a peer.
func ReadHello(value []byte) Hello {
	var h Hello
	for m := range jsonrpc.Members(value, whole(value)) {
		switch {
		case m.Named(value, "protocolVersion"):
			h.Version = readVersion(m.Value.Of(value))
		case m.Named(value, "clientInfo"), m.Named(value, "agentInfo"), m.Named(value, "info"):
			if at, ok, _ := jsonrpc.Member(value, m.Value, "name"); ok {
				h.Name, _ = jsonrpc.ReadString(value, at, maxName)
			}
		case m.Named(value, "clientCapabilities"), m.Named(value, "agentCapabilities"), m.Named(value, "capabilities"):
			if jsonrpc.KindAt(value, m.Value) == jsonrpc.ObjectValue {
				h.Caps = m.Value.Of(value)
			}
		}
	}
	h.readFlag()
	h.Close = h.Version >= Version2 || h.Has("sessionCapabilities", "close")
	return h
}

// readFlag reads the flag under both names that it has (ACP-6, A1). Where they
// contradict each other the answer is no.
func (h *Hello) readFlag() {
	const other = "supportsRequestCancellation"
	take := func(s jsonrpc.Span) {
		switch jsonrpc.KindAt(h.Caps, s) {
		case jsonrpc.FalseValue:
			h.Cancel = FlagFalse
		case jsonrpc.TrueValue:
			if h.Cancel == FlagAbsent {
				h.Cancel = FlagTrue
			}
		default: // says nothing
		}
	}
	for m := range jsonrpc.Members(h.Caps, whole(h.Caps)) {
		switch {
		case m.Named(h.Caps, other):
			h.Used = true
			take(m.Value)
		case m.Named(h.Caps, "cancellation"):
			h.Used = true
			for in := range jsonrpc.Members(h.Caps, m.Value) {
				if in.Named(h.Caps, "request") || in.Named(h.Caps, other) {
					take(in.Value)
				}
			}
		}
	}
}

// Has reports whether the capability at the end of path is there: true, or an
// object, as the markers of v2 are.
func (h *Hello) Has(path ...string) bool {
	at, ok, _ := jsonrpc.Path(h.Caps, whole(h.Caps), path...)
	if !ok {
		return false
	}
	k := jsonrpc.KindAt(h.Caps, at)
	return k == jsonrpc.TrueValue || k == jsonrpc.ObjectValue
}

// DeclareCancel returns capabilities, the JSON text of an object or nil, with
// cancellation.request set to true (ACP-5). What is said there about cancellation
// already stays as it is.
func DeclareCancel(capabilities []byte) []byte {
	value := []byte(`{"request":true}`)
	at := whole(capabilities)
	if jsonrpc.KindAt(capabilities, at) != jsonrpc.ObjectValue {
		capabilities, at = []byte("{}"), jsonrpc.Span{End: len("{}")}
	}
	if _, ok, _ := jsonrpc.Member(capabilities, at, "cancellation"); ok {
		return bytes.Clone(capabilities)
	}
	return jsonrpc.AppendInsertMember(nil, capabilities, at, "cancellation", value)
}

func readVersion(text []byte) int {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
