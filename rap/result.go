package rap

import (
	"encoding/json"
	"fmt"
)

// ToolResult ends a call (RAP-62); with Subscription it begins a live
// subscription instead (RAP-65). There is no member for errors: their text begins
// with "Error: " (RAP-66).
type ToolResult struct {
	GroupID      string
	ID           string
	CallID       *string
	Text         string
	Content      []Item          // for the model, in place of Text; nil: none
	DisplayAs    json.RawMessage // an array of segments for people, passed on unread; nil: none
	Subscription bool
}

// The types of an [Item].
const (
	ItemText  = "text"
	ItemImage = "image"
)

// Item is a part of a result's content: a text, or an image (RAP-63).
type Item struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Data      string `json:"data,omitempty"` // base64
	MediaType string `json:"mediaType,omitempty"`
}

func readResult(o *object) *ToolResult {
	r := &ToolResult{GroupID: o.id("group_id"), ID: o.id("id"), CallID: o.callID(), Subscription: o.flag("subscription")}
	r.Text, _ = o.optional("text", MaxMessage)
	if !o.has("text") && !o.has("content") {
		o.failf("text", "and content are both missing")
	}
	for i, s := range o.list("content", MaxItems) {
		c := o.child(s, fmt.Sprintf("content[%d].", i), "type", "text", "data", "mediaType")
		item := Item{Type: c.text("type", MaxName)}
		switch item.Type {
		case ItemText:
			item.Text = c.text("text", MaxMessage)
		case ItemImage:
			item.Data, item.MediaType = c.text("data", MaxMessage), c.text("mediaType", MaxName)
		}
		if c.err != nil {
			o.err = c.err
			return r
		}
		r.Content = append(r.Content, item)
	}
	if r.Content == nil && !o.has("text") {
		o.failf("content", "is empty, and there is no text")
	}
	r.DisplayAs = o.raw("display_as", rawArray)
	return r
}

// Type is [TypeResult].
func (*ToolResult) Type() Type { return TypeResult }

// Address is the call that the result ends.
func (r *ToolResult) Address() (group, id string) { return r.GroupID, r.ID }

// Items is what the model gets: the content, or the text as one item.
func (r *ToolResult) Items() []Item {
	if len(r.Content) > 0 {
		return r.Content
	}
	return []Item{{Type: ItemText, Text: r.Text}}
}

func (r *ToolResult) check() error {
	if err := checkAddress(r.GroupID, r.ID, r.CallID); err != nil {
		return err
	}
	if len(r.Content) > MaxItems {
		return fmt.Errorf("%w: content of %d items, at most %d are allowed", ErrMalformed, len(r.Content), MaxItems)
	}
	for i := range r.Content {
		switch item := &r.Content[i]; item.Type {
		case ItemText:
		case ItemImage:
			if item.Data == "" || item.MediaType == "" {
				return fmt.Errorf("%w: content[%d] is an image without data or mediaType", ErrMalformed, i)
			}
		default:
			return fmt.Errorf("%w: content[%d] has the type %.64q, there are text and image", ErrMalformed, i, item.Type)
		}
	}
	if len(r.DisplayAs) > 0 && !isKind(r.DisplayAs, rawArray) {
		return fmt.Errorf("%w: display_as must be an array", ErrMalformed)
	}
	return nil
}

// Append appends the result as JSON. Without content there is always a text.
func (r *ToolResult) Append(dst []byte) ([]byte, error) {
	text := &r.Text
	if len(r.Content) > 0 && r.Text == "" {
		text = nil
	}
	return appendMessage(dst, r, len(r.Text), func(w *writer) {
		w.text("group_id", r.GroupID)
		w.text("id", r.ID)
		w.optional("call_id", r.CallID)
		w.optional("text", text)
		w.items("content", r.Content)
		w.raw("display_as", r.DisplayAs)
		w.flag("subscription", r.Subscription)
	})
}
