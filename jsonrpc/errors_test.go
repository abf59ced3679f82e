package jsonrpc

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// One place maps errors to codes, also when they are wrapped.
func TestCodes(t *testing.T) {
	for err, want := range map[error]int{
		ErrSyntax: CodeParseError, ErrDuplicateKey: CodeInvalidRequest, ErrDepth: CodeInvalidRequest, ErrID: CodeInvalidRequest,
		ErrEmptyBatch: CodeInvalidRequest, ErrBatchTooLong: CodeInvalidRequest, ErrNotObject: CodeInvalidRequest,
		&TooLongError{Size: 9, Max: 3}: CodeInvalidRequest, &PartialError{Size: 9, Err: io.ErrUnexpectedEOF}: 0, ErrQueueFull: 0, io.EOF: 0,
	} {
		if got := Code(fmt.Errorf("reading: %w", err)); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
		if err.Error() == "" {
			t.Errorf("%T says nothing", err)
		}
	}
}

// Messages are for logs: bounded, whatever the peer sent.
func TestErrorsAreShort(t *testing.T) {
	for _, frame := range []string{
		`{"` + strings.Repeat("k", 100_000) + `":{"` + strings.Repeat("l", 100_000) + `":x}}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("k", 100_000) + `","method":"m"}`,
		`{"jsonrpc":"2.0","id":{"a":"` + strings.Repeat("k", 100) + `"},"method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("k", 100_000) + `"}`,
		strings.Repeat("x", 100_000), "", "{}{}", "[", "[1", `{"a" 1}`, `{1:2}`,
	} {
		var e Envelope
		err := Parse([]byte(frame), &e)
		if err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40s: %v", frame, err)
		}
		if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40s: %v", frame, err)
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	var names []string
	for k := Unknown; k <= Response; k++ {
		names = append(names, k.String())
	}
	for k := IDAbsent; k <= IDString; k++ {
		names = append(names, k.String())
	}
	for _, k := range []ValueKind{NoValue, NullValue, TrueValue, FalseValue, StringValue, NumberValue, ObjectValue, ArrayValue, '}'} {
		names = append(names, k.String())
	}
	want(t, names, "unknown", "request", "notification", "response", "absent", "null", "number", "string",
		"nothing", "null", "boolean", "boolean", "string", "number", "object", "array", "invalid")
}

// A source that never delivers and never fails is an error, not a busy loop.
func TestReaderGivesUpOnEmptyReads(t *testing.T) {
	if _, err := NewReader(emptyReader{}, ReaderOptions{}).Next(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }
