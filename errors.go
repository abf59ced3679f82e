package belay

import (
	"errors"
)

// Sentinel errors. Every error of this package wraps one of them; CodeOf maps
// any error to the code that other protocols and the command line show.
var (
	ErrCancelled   = errors.New("cancelled")                 // the run, or a run above it, was cancelled
	ErrNotFound    = errors.New("no such run")               // unknown, expired, or not visible to the asker
	ErrEnded       = errors.New("run has ended")             // it is over; nothing can be done to it
	ErrClosed      = errors.New("closed")                    // the tree takes no new runs
	ErrTooMany     = errors.New("too many")                  // a bound is reached: of runs in flight, of open questions
	ErrBadRequest  = errors.New("bad request")               // a value that cannot be accepted
	ErrForbidden   = errors.New("not permitted")             // the asker may not do this
	ErrUnreachable = errors.New("could not be reached")      // nobody is there to be told
	ErrUnsupported = errors.New("not possible here")         // the backend has no such ability
	ErrRestrained  = errors.New("force was held back")       // a Gate refused; see Restraint
	ErrAmbiguous   = errors.New("matches more than one run") // name it more exactly
)

// Code is a stable name for a class of errors, the same in every door.
type Code string

// The codes, with what each door makes of them.
var codes = []struct {
	err     error
	code    Code
	status  int // HTTP
	jsonrpc int
	exit    int
}{
	{ErrCancelled, "cancelled", 409, CodeCancelled, 130},
	{ErrNotFound, "not_found", 404, -32602, 4},
	{ErrEnded, "ended", 409, -32602, 4},
	{ErrClosed, "closed", 503, -32603, 1},
	{ErrTooMany, "too_many", 503, -32603, 1},
	{ErrBadRequest, "bad_request", 400, -32602, 2},
	{ErrForbidden, "forbidden", 403, -32602, 1},
	{ErrUnreachable, "unreachable", 502, -32603, 1},
	{ErrUnsupported, "unsupported", 501, -32603, 1},
	{ErrRestrained, "restrained", 409, -32603, 3},
	{ErrAmbiguous, "ambiguous", 409, -32602, 2},
	{ErrDecided, "decided", 409, -32602, 4},
	{ErrDeclined, "declined", 403, -32603, 1},
}

// CodeCancelled is the JSON-RPC error code of a call that somebody other than
// its caller stopped (MCP-G26). It lies outside the range that MCP reserves.
const CodeCancelled = -32800

// CodeOf names the class of err: the first sentinel that it wraps, "internal"
// for any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "internal"
}

// ErrorOf is the sentinel that a code stands for, so that an error keeps its
// class across a wire; nil for an unknown code.
func ErrorOf(code Code) error {
	for _, c := range codes {
		if c.code == code {
			return c.err
		}
	}
	return nil
}

// HTTPStatus is the status of an HTTP answer for err. Together with
// [JSONRPCCode] and [ExitCode] it is the one place where errors become numbers
// of a protocol. An unknown error is 500, -32603 and 1.
func HTTPStatus(err error) int {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.status
		}
	}
	return 500
}

// JSONRPCCode is the JSON-RPC error code for err; see [HTTPStatus].
func JSONRPCCode(err error) int {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.jsonrpc
		}
	}
	return -32603
}

// ExitCode is the exit code of the command line for err; 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.exit
		}
	}
	return 1
}

// Restraint is why a [Gate] does not let force be used.
type Restraint struct {
	Why      string  // one sentence, for the receipt and for ps
	Blocking []RunID // the runs that would have been harmed, if that is why
	Futile   bool    // no Stop, however often, can change that: the run is over when it is given up
}

// Error implements error.
func (r *Restraint) Error() string { return "force was held back: " + r.Why }

// Is makes errors.Is(err, ErrRestrained) true.
func (r *Restraint) Is(target error) bool { return target == ErrRestrained }
