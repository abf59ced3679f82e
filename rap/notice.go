package rap

import "fmt"

// CancelNotice tells a tool server that a call was cancelled (RAP-9, RAP-10).
type CancelNotice struct {
	ThreadID   string `json:"thread_id"`    // the invocation's group_id
	ToolCallID string `json:"tool_call_id"` // the invocation's id
}

// ParseCancel reads a cancel. A server answers one that is malformed like any
// other, and does nothing (RAP-11).
func ParseCancel(body []byte) (CancelNotice, error) {
	o := readObject(body, MaxNotice, "thread_id", "tool_call_id")
	n := CancelNotice{ThreadID: o.id("thread_id"), ToolCallID: o.id("tool_call_id")}
	return n, o.err
}

// Append appends the notice as JSON.
func (n CancelNotice) Append(dst []byte) ([]byte, error) {
	if err := checkAddress(n.ThreadID, n.ToolCallID, nil); err != nil {
		return dst, err
	}
	return appendJSON(dst, n)
}

// CloseNotice tells a tool server that a thread is over (RAP-87).
type CloseNotice struct {
	ThreadID string `json:"thread_id"`
}

// ParseClose reads a close. A server answers one that is malformed like any other.
func ParseClose(body []byte) (CloseNotice, error) {
	o := readObject(body, MaxNotice, "thread_id")
	n := CloseNotice{ThreadID: o.id("thread_id")}
	return n, o.err
}

// Append appends the notice as JSON.
func (n CloseNotice) Append(dst []byte) ([]byte, error) {
	if err := CheckID(n.ThreadID); err != nil {
		return dst, err
	}
	return appendJSON(dst, n)
}

// Migration asks a tool server to move the state of a session to another server
// (RAP-89).
type Migration struct {
	SessionID      string `json:"session_id"`
	DestinationURL string `json:"destination_url"`
}

// ParseMigration reads a migration.
func ParseMigration(body []byte) (Migration, error) {
	o := readObject(body, MaxNotice, "session_id", "destination_url")
	m := Migration{SessionID: o.id("session_id"), DestinationURL: o.text("destination_url", MaxURL)}
	if o.err == nil {
		if _, err := CheckURL(m.DestinationURL); err != nil {
			o.failf("destination_url", "cannot be used: %v", err)
		}
	}
	return m, o.err
}

// Append appends the request as JSON.
func (m Migration) Append(dst []byte) ([]byte, error) {
	if err := CheckID(m.SessionID); err != nil {
		return dst, fmt.Errorf("session_id: %w", err)
	}
	if _, err := CheckURL(m.DestinationURL); err != nil {
		return dst, fmt.Errorf("destination_url: %w", err)
	}
	return appendJSON(dst, m)
}
