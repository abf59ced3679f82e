package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// Sentinel errors. Errors of this package wrap one of them, or are an [*Error] of
// the peer, or a [*CancelError].
var (
	ErrClosed      = errors.New("connection is closed")          // it was closed at this end, and takes no more calls
	ErrLost        = errors.New("connection is lost")            // the other end is gone, or can no longer be read
	ErrFlooded     = errors.New("more messages than are kept")   // the peer sends faster than a handler takes
	ErrMalformed   = errors.New("malformed answer")              // what the peer sent is no answer
	ErrOver        = errors.New("it is over")                    // the turn or session has ended: nothing more is sent for it
	ErrUnsupported = errors.New("the other side does not do it") // it lacks the capability, or does not advertise it now
	ErrBadRequest  = errors.New("bad request")                   // a value that may not be sent
)

// Error is an error answer, of the peer or for the peer. A handler that returns
// one decides what is sent.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (%d)", belay.CleanReason(e.Message), e.Code)
}

// Is makes an answer that says "cancelled" match [belay.ErrCancelled]: somebody
// stopped the request, and not this caller (ACP-L2). Only the code counts
// (ACP-49).
func (e *Error) Is(target error) bool {
	return target == belay.ErrCancelled && e.Code == CodeCancelled
}

// MethodNotFound is the error with which a handler refuses a method that it does
// not know (ACP-74).
func MethodNotFound(method string) error {
	return &Error{Code: CodeMethodNotFound, Message: fmt.Sprintf("method not found: %.128s", method)}
}

// InvalidParams is the error with which a handler refuses params.
func InvalidParams(format string, args ...any) error {
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// CancelError is what a call returns that its own context stopped before a result
// came. It matches [context.Canceled] and [belay.ErrCancelled], and wraps the
// cause of the context.
type CancelError struct {
	Method string
	Cause  error // context.Cause of the call's context
	// Verdict is what is known of the work at the other side: confirmed, since the
	// request was never sent; acknowledged, since it answered that it was cancelled;
	// signalled: told, and no answer in time; unreachable: it could not be told.
	Verdict belay.Verdict
}

// Error implements error.
func (e *CancelError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.Method, e.Verdict, e.Cause)
}

// Is implements the matches that the type promises.
func (e *CancelError) Is(target error) bool {
	return target == context.Canceled || target == belay.ErrCancelled
}

// Unwrap returns the cause.
func (e *CancelError) Unwrap() error { return e.Cause }

// stopped reports whether err says that work ended since somebody stopped it: the
// end of a context, or an answer which says so (ACP-L5).
func stopped(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, belay.ErrCancelled)
}

// answerOf is the error answer for what a handler returned.
func answerOf(err error) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	return &Error{Code: belay.JSONRPCCode(err), Message: belay.CleanReason(err.Error())}
}

// readError reads the error member of an answer.
func readError(frame []byte, at jsonrpc.Span) *Error {
	e := &Error{}
	if err := json.Unmarshal(at.Of(frame), e); err != nil || e.Code == 0 && e.Message == "" {
		return &Error{Code: CodeInternal, Message: fmt.Sprintf("an error answer that cannot be read: %.200s", at.Of(frame))}
	}
	return e
}

// errCleanUp ends what goes on after a cancel or at the end of a connection, and must
// not take long.
var errCleanUp = errors.New("the time for cleaning up is over")
