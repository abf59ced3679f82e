package rap

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/belayhq/belay/jsonrpc"
)

// Invocation asks a tool server to run a tool (RAP-54). (GroupID, ID) names the
// call; cancel and close call the same two values thread_id and tool_call_id.
type Invocation struct {
	Operation       string          `json:"operation"`
	Arguments       json.RawMessage `json:"arguments"` // an object
	ID              string          `json:"id"`
	CallID          *string         `json:"call_id,omitempty"` // echoed in the answer; nil: none
	CallbackURL     string          `json:"callback_url"`      // opaque, and a secret (RAP-40)
	GroupID         string          `json:"group_id"`
	ThreadAncestors []string        `json:"thread_ancestors,omitempty"` // from the root to the parent
	UserID          string          `json:"user_id,omitempty"`
}

// ParseInvocation reads an invocation. An error that wraps [ErrArguments] comes
// with an invocation that can be answered, and is to be answered with that error
// as its result; with every other error there is no invocation.
func ParseInvocation(body []byte) (*Invocation, error) {
	inv, _, err := parseInvocation(body)
	return inv, err
}

var invocationKeys = []string{"operation", "arguments", "id", "call_id", "callback_url", "group_id", "thread_ancestors", "user_id"}

// parseInvocation is ParseInvocation for whoever needs the parsed callback URL, too.
func parseInvocation(body []byte) (*Invocation, *url.URL, error) {
	o := readObject(body, MaxInvocation, invocationKeys...)
	var inv Invocation
	inv.ID = o.id("id")
	inv.GroupID = o.id("group_id")
	inv.CallbackURL = o.text("callback_url", MaxURL)
	var callback *url.URL
	if o.err == nil {
		var err error
		if callback, err = CheckURL(inv.CallbackURL); err != nil {
			o.failf("callback_url", "cannot be used: %v", err)
		}
	}
	if o.err != nil {
		return nil, nil, o.err
	}
	// From here on there is somebody who can be told.
	if id, ok := o.optional("call_id", MaxID); ok {
		inv.CallID = &id
	}
	inv.Operation = o.text("operation", MaxName*utf8.UTFMax)
	inv.Arguments = o.raw("arguments", jsonrpc.ObjectValue)
	inv.ThreadAncestors = o.texts("thread_ancestors", MaxAncestors, MaxID, CheckID)
	inv.UserID, _ = o.optional("user_id", MaxID)
	o.need("arguments")
	err := o.err
	if err == nil {
		err = inv.checkRest()
	}
	if err != nil {
		return &inv, callback, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return &inv, callback, nil
}

// Append appends the invocation as JSON.
func (inv *Invocation) Append(dst []byte) ([]byte, error) {
	if _, err := CheckURL(inv.CallbackURL); err != nil {
		return dst, err
	}
	return inv.append(dst)
}

// append is Append for a callback URL that is known to be good.
func (inv *Invocation) append(dst []byte) ([]byte, error) {
	if err := checkAddress(inv.GroupID, inv.ID, inv.CallID); err != nil {
		return dst, err
	}
	if err := inv.checkRest(); err != nil {
		return dst, err
	}
	if !isKind(inv.Arguments, jsonrpc.ObjectValue) {
		return dst, fmt.Errorf("%w: arguments must be an object", ErrMalformed)
	}
	w := newWriter(slices.Grow(dst, len(inv.Arguments)+len(inv.CallbackURL)+256))
	w.text("operation", inv.Operation)
	w.raw("arguments", inv.Arguments)
	w.text("id", inv.ID)
	w.optional("call_id", inv.CallID)
	w.text("callback_url", inv.CallbackURL)
	w.text("group_id", inv.GroupID)
	if len(inv.ThreadAncestors) > 0 {
		w.texts("thread_ancestors", inv.ThreadAncestors)
	}
	if inv.UserID != "" {
		w.text("user_id", inv.UserID)
	}
	out := w.end()
	if len(out)-len(dst) > MaxInvocation {
		return dst, fmt.Errorf("%w: an invocation of %d bytes, at most %d are allowed", ErrTooLarge, len(out)-len(dst), MaxInvocation)
	}
	return out, nil
}

// checkRest is about what can be wrong although the call can be answered.
func (inv *Invocation) checkRest() error {
	if err := checkName(inv.Operation); err != nil {
		return fmt.Errorf("operation: %w", err)
	}
	if inv.UserID != "" {
		if err := CheckID(inv.UserID); err != nil {
			return fmt.Errorf("user_id: %w", err)
		}
	}
	if len(inv.ThreadAncestors) > MaxAncestors {
		return fmt.Errorf("%w: %d thread_ancestors, at most %d are allowed", ErrMalformed, len(inv.ThreadAncestors), MaxAncestors)
	}
	for _, id := range inv.ThreadAncestors {
		if err := CheckID(id); err != nil {
			return fmt.Errorf("thread_ancestors: %w", err)
		}
	}
	return nil
}

// checkAddress is the rule for the ids of a message that names a call.
func checkAddress(group, id string, callID *string) error {
	if err := CheckID(group); err != nil {
		return fmt.Errorf("group_id: %w", err)
	}
	if err := CheckID(id); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if callID != nil && (len(*callID) > MaxID || !utf8.ValidString(*callID)) {
		return fmt.Errorf("%w: call_id must be at most %d bytes of UTF-8", ErrMalformed, MaxID)
	}
	return nil
}
