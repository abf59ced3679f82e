package jsonrpc

import (
	"errors"
	"fmt"
)

// The two families of bad messages. Every error of [Parse] and [SplitBatch] is
// one of them, so that a caller who must answer needs only [Code].
var (
	// ErrSyntax says that the bytes are not one JSON value: JSON-RPC's "Parse
	// error", -32700.
	ErrSyntax = errors.New("not valid JSON")
	// ErrInvalid says that the bytes are JSON but not a JSON-RPC 2.0 message
	// that may be passed on: "Invalid Request", -32600. The errors below with
	// this text in front wrap it.
	ErrInvalid = errors.New("invalid JSON-RPC message")
)

// Reasons for which a message is refused. All of them match [ErrInvalid].
var (
	// ErrNotObject: valid JSON, but no object (a number, an array in a batch).
	ErrNotObject = fmt.Errorf("%w: it must be an object", ErrInvalid)
	// ErrDepth: nested deeper than [MaxDepth].
	ErrDepth = fmt.Errorf("%w: nested deeper than %d levels", ErrInvalid, MaxDepth)
	// ErrDuplicateKey: a member that decides something is there twice.
	ErrDuplicateKey = fmt.Errorf("%w: a member is there twice", ErrInvalid)
	// ErrVersion: the jsonrpc member is missing or is not "2.0".
	ErrVersion = fmt.Errorf(`%w: member "jsonrpc" must be "2.0"`, ErrInvalid)
	// ErrID: the id is neither string, number nor null, or longer than [MaxIDLen].
	ErrID = fmt.Errorf("%w: bad id", ErrInvalid)
	// ErrShape: the members do not make up a request, notification or response.
	ErrShape = fmt.Errorf("%w: neither request, notification nor response", ErrInvalid)
	// ErrEmptyBatch: a batch without elements, which JSON-RPC forbids.
	ErrEmptyBatch = fmt.Errorf("%w: a batch must have elements", ErrInvalid)
	// ErrBatchTooLong: a batch with more elements than the caller's limit.
	ErrBatchTooLong = fmt.Errorf("%w: too many elements in a batch", ErrInvalid)
)

// Errors of the helpers, the line framing, and the tables.
var (
	// ErrKind: the JSON value at a span is not of the kind that was asked for.
	ErrKind = errors.New("unexpected kind of JSON value")
	// ErrTooLong: a line, frame or string is over its bound. [TooLongError] and
	// the errors of [ReadString] match it.
	ErrTooLong = errors.New("too long")
	// ErrQueueFull: the writer's queue is at its bound because the peer does not
	// read.
	ErrQueueFull = errors.New("write queue is full")
	// ErrClosed: the writer was closed before.
	ErrClosed = errors.New("writer is closed")
	// ErrEmptyFrame: a frame without bytes, which would be a blank line.
	ErrEmptyFrame = errors.New("empty frame")
	// ErrWriteStuck: the writer's goroutine could not be freed from a write that
	// the operating system does not let us interrupt.
	ErrWriteStuck = errors.New("write goroutine still blocked")
	// ErrDuplicateID: an id is already in flight in the table.
	ErrDuplicateID = errors.New("id is already in flight")
	// ErrTooMany: the table is at its bound.
	ErrTooMany = errors.New("too many messages in flight")
)

// JSON-RPC 2.0 error codes that this package's errors map to.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
)

// Code returns the JSON-RPC error code with which err is to be answered:
// [CodeParseError] for [ErrSyntax], [CodeInvalidRequest] for [ErrInvalid] and for
// [ErrTooLong], else 0: err does not come from reading a message.
func Code(err error) int {
	switch {
	case errors.Is(err, ErrSyntax):
		return CodeParseError
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrTooLong):
		return CodeInvalidRequest
	}
	return 0
}
