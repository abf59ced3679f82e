package gateway

import "github.com/belayhq/belay"

// Gate decides whether a call may start. It is asked only about calls that do
// work (tools/call, prompts/get, resources/read, completion/complete), never
// about lists, handshakes and pings, so that a session stays usable while nothing
// may run. Its methods are called with locks held: they must be quick, must not
// wait, and must not call into the session or the tree. Safe for concurrent use.
type Gate interface {
	// Admit is asked before a call of the owner starts. An error refuses it: the
	// call is no run, and the caller gets the error's text with the code that
	// [belay.JSONRPCCode] gives.
	Admit(owner string) error

	// Early takes the Stop of the owner that came before the call with this
	// JSON-RPC id (ORC-79), if there is one. id is the text of the id: 7 for the
	// number 7 and for the string "7". The call is then registered and cancelled
	// with what is returned, so that there is a receipt; it never reaches the
	// server, and its caller is answered like one whose call somebody else
	// stopped (ORC-57).
	Early(owner, id string) (belay.Cancellation, bool)
}
