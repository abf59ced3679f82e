package rap

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// OAuth asks for an authorisation by the user; the call stays pending (RAP-80).
type OAuth struct {
	GroupID string
	ID      string
	CallID  *string
	AuthURL string // https
}

func readOAuth(o *object) *OAuth {
	return &OAuth{GroupID: o.id("group_id"), ID: o.id("id"), CallID: o.callID(), AuthURL: o.text("auth_url", MaxURL)}
}

// Type is [TypeOAuth].
func (*OAuth) Type() Type { return TypeOAuth }

// Address is the call that waits for the authorisation.
func (a *OAuth) Address() (group, id string) { return a.GroupID, a.ID }

func (a *OAuth) check() error {
	if err := checkAddress(a.GroupID, a.ID, a.CallID); err != nil {
		return err
	}
	u, err := CheckURL(a.AuthURL)
	if err != nil {
		return fmt.Errorf("auth_url: %w", err)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("%w: auth_url must begin with https://", ErrMalformed)
	}
	return nil
}

// Append appends the message as JSON.
func (a *OAuth) Append(dst []byte) ([]byte, error) {
	return appendMessage(dst, a, len(a.AuthURL), func(w *writer) {
		w.text("group_id", a.GroupID)
		w.text("id", a.ID)
		w.optional("call_id", a.CallID)
		w.text("auth_url", a.AuthURL)
	})
}

// UserChoice asks the user to pick one of Choices; the call stays pending, and the
// answer, a [Selection], goes to ResponseURL (RAP-82).
type UserChoice struct {
	GroupID     string
	ID          string
	CallID      *string
	Prompt      string
	Choices     []string
	Default     int // an index into Choices; what dismissing means
	ResponseURL string
}

func readChoice(o *object) *UserChoice {
	c := &UserChoice{GroupID: o.id("group_id"), ID: o.id("id"), CallID: o.callID()}
	c.Prompt = o.text("prompt", MaxMessage)
	o.need("choices")
	c.Choices = o.texts("choices", MaxChoices, MaxMessage, nil)
	c.Default = o.integer("default")
	c.ResponseURL = o.text("response_url", MaxURL)
	return c
}

// Type is [TypeChoice].
func (*UserChoice) Type() Type { return TypeChoice }

// Address is the call that waits for the choice.
func (c *UserChoice) Address() (group, id string) { return c.GroupID, c.ID }

func (c *UserChoice) check() error {
	if err := checkAddress(c.GroupID, c.ID, c.CallID); err != nil {
		return err
	}
	if n := len(c.Choices); n == 0 || n > MaxChoices {
		return fmt.Errorf("%w: %d choices, there must be 1 to %d", ErrMalformed, n, MaxChoices)
	}
	if c.Default < 0 || c.Default >= len(c.Choices) {
		return fmt.Errorf("%w: default is %d, there are %d choices", ErrMalformed, c.Default, len(c.Choices))
	}
	if _, err := CheckURL(c.ResponseURL); err != nil {
		return fmt.Errorf("response_url: %w", err)
	}
	return nil
}

// Append appends the message as JSON.
func (c *UserChoice) Append(dst []byte) ([]byte, error) {
	return appendMessage(dst, c, len(c.Prompt), func(w *writer) {
		w.text("group_id", c.GroupID)
		w.text("id", c.ID)
		w.optional("call_id", c.CallID)
		w.text("prompt", c.Prompt)
		w.texts("choices", c.Choices)
		w.integer("default", c.Default)
		w.text("response_url", c.ResponseURL)
	})
}

// Selection answers a [UserChoice] (RAP-83). Whether the index is in range only
// the server knows that asked.
type Selection struct {
	ID       string `json:"id"`
	Selected int    `json:"selected"`
}

// ParseSelection reads the answer to a choice.
func ParseSelection(body []byte) (Selection, error) {
	o := readObject(body, MaxNotice, "id", "selected")
	s := Selection{ID: o.id("id"), Selected: o.integer("selected")}
	return s, o.err
}

// Append appends the answer as JSON.
func (s Selection) Append(dst []byte) ([]byte, error) {
	if err := CheckID(s.ID); err != nil {
		return dst, err
	}
	return appendJSON(dst, s)
}

// ViewUpdate is the latest state of one view of a thread (RAP-86).
type ViewUpdate struct {
	GroupID  string
	ViewType string
	Content  json.RawMessage // an object, passed on unread
}

func readView(o *object) *ViewUpdate {
	v := &ViewUpdate{GroupID: o.id("group_id"), ViewType: o.text("view_type", MaxName*utf8.UTFMax)}
	o.need("content")
	v.Content = o.raw("content", rawObject)
	return v
}

// Type is [TypeView].
func (*ViewUpdate) Type() Type { return TypeView }

// Address is the thread; the id is empty.
func (v *ViewUpdate) Address() (group, id string) { return v.GroupID, "" }

func (v *ViewUpdate) check() error {
	if err := CheckID(v.GroupID); err != nil {
		return fmt.Errorf("group_id: %w", err)
	}
	if err := checkName(v.ViewType); err != nil {
		return fmt.Errorf("view_type: %w", err)
	}
	if !isKind(v.Content, rawObject) {
		return fmt.Errorf("%w: content must be an object", ErrMalformed)
	}
	return nil
}

// Append appends the message as JSON.
func (v *ViewUpdate) Append(dst []byte) ([]byte, error) {
	return appendMessage(dst, v, len(v.Content), func(w *writer) {
		w.text("group_id", v.GroupID)
		w.text("view_type", v.ViewType)
		w.raw("content", v.Content)
	})
}

// ErrorText is text as the protocol wants the text of a failed call: it begins
// with "Error: " (RAP-66).
func ErrorText(text string) string {
	if strings.HasPrefix(text, "Error: ") {
		return text
	}
	return "Error: " + text
}
