package rap

import (
	"fmt"
	"slices"

	"github.com/belayhq/belay/jsonrpc"
)

// Type is the tag of a message to a callback URL.
type Type string

// The messages that a tool server sends.
const (
	TypeResult       Type = "tool_result"
	TypeSubscription Type = "subscription_event"
	TypeOAuth        Type = "oauth"
	TypeChoice       Type = "user_choice"
	TypeView         Type = "view_update"
)

// Message is one message to a callback URL: a *[ToolResult], *[SubscriptionEvent],
// *[OAuth], *[UserChoice] or *[ViewUpdate].
type Message interface {
	// Type is the message's tag.
	Type() Type

	// Address is the call that the message belongs to. A [ViewUpdate] names a
	// thread only: its id is empty.
	Address() (group, id string)

	// Append appends the message as JSON, its tag included.
	Append(dst []byte) ([]byte, error)
}

// messageKeys are the members of all messages.
var messageKeys = []string{
	"type", "group_id", "id", "call_id", "text", "content", "display_as", "subscription",
	"tool_call_id", "associative", "final", "auth_url", "prompt", "choices", "default", "response_url", "view_type",
}

// ParseMessage reads a message to a callback URL by its tag. What it refuses is
// to be answered with 400, and leaves the call pending.
func ParseMessage(body []byte) (Message, error) {
	o := readObject(body, MaxMessage, messageKeys...)
	t := Type(o.text("type", MaxName))
	if o.err != nil {
		return nil, o.err
	}
	var m checked
	switch t {
	case TypeResult:
		m = readResult(o)
	case TypeSubscription:
		m = readSubscription(o)
	case TypeOAuth:
		m = readOAuth(o)
	case TypeChoice:
		m = readChoice(o)
	case TypeView:
		m = readView(o)
	default:
		return nil, fmt.Errorf("%w: no message has the type %.64q", ErrMalformed, string(t))
	}
	if o.err != nil {
		return nil, o.err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// callID reads the optional call_id.
func (o *object) callID() *string {
	if id, ok := o.optional("call_id", MaxID); ok {
		return &id
	}
	return nil
}

// SubscriptionEvent is one event of a call that is a live subscription (RAP-73).
// Final says that there is no other after it (RAP-74).
type SubscriptionEvent struct {
	GroupID     string
	ToolCallID  string // the id of the invocation; here the protocol calls it tool_call_id
	Text        string
	Associative bool
	Final       bool
}

func readSubscription(o *object) *SubscriptionEvent {
	return &SubscriptionEvent{
		GroupID: o.id("group_id"), ToolCallID: o.id("tool_call_id"), Text: o.text("text", MaxMessage),
		Associative: o.flag("associative"), Final: o.flag("final"),
	}
}

// Type is [TypeSubscription].
func (*SubscriptionEvent) Type() Type { return TypeSubscription }

// Address is the call that subscribed.
func (e *SubscriptionEvent) Address() (group, id string) { return e.GroupID, e.ToolCallID }

func (e *SubscriptionEvent) check() error { return checkAddress(e.GroupID, e.ToolCallID, nil) }

// Append appends the event as JSON.
func (e *SubscriptionEvent) Append(dst []byte) ([]byte, error) {
	return appendMessage(dst, e, len(e.Text), func(w *writer) {
		w.text("group_id", e.GroupID)
		w.text("tool_call_id", e.ToolCallID)
		w.text("text", e.Text)
		w.flag("associative", e.Associative)
		w.flag("final", e.Final)
	})
}

// checked is a message that can say what is wrong with it.
type checked interface {
	Message
	check() error
}

// appendMessage checks m and appends it: its tag, and what rest writes, which is
// about so many bytes.
func appendMessage(dst []byte, m checked, size int, rest func(*writer)) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, err
	}
	w := newWriter(slices.Grow(dst, size+256))
	w.text("type", string(m.Type()))
	rest(w)
	out := w.end()
	if len(out)-len(dst) > MaxMessage {
		return dst, fmt.Errorf("%w: a message of %d bytes, at most %d are allowed", ErrTooLarge, len(out)-len(dst), MaxMessage)
	}
	return out, nil
}

// rawArray and rawObject read members that are passed on unread.
const (
	rawArray  = jsonrpc.ArrayValue
	rawObject = jsonrpc.ObjectValue
)
