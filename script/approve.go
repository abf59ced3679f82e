package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dop251/goja"
)

// Dialog is what a tool asks a person before it works (AT-49, AT-59).
type Dialog struct {
	Title     string
	Message   string
	Primary   string // the button that agrees; "": there is none
	Secondary string // the button that declines; "": there is none
	Preview   string // the button that shows what would happen; "": there is none

	// OnPreview runs what the preview button stands for, and returns what the script
	// reported meanwhile: there is no other way for it to show something. It may be
	// called from any goroutine while the person is asked; where Preview is "" it is
	// nil.
	OnPreview func(ctx context.Context) string
}

// Answer is what the person did.
type Answer string

// The answers to a dialog.
const (
	Primary   Answer = "primary"
	Secondary Answer = "secondary"
	Dismissed Answer = "dismissed" // closed, not answered in time, or nobody to ask
)

// errStopped says that the Stop came while a person was asked.
var errStopped = errors.New("stopped while a person was asked")

// approve asks the script what to ask, and the person (AT-58 to AT-65). It returns
// the flags that the execute function gets, as JSON.
func (c *Call) approve(ctx context.Context) (flags string, err error) {
	c.phase = asking
	defer func() { c.ended.Declined = c.ended.Declined || c.exited && err != nil }() // it ended before anybody agreed
	d, err := c.dialog()
	if err != nil {
		return "", err
	}
	answer := Dismissed
	switch {
	case c.options.AutoApprove && c.tool.Manifest.AutoApprove:
		answer = Primary
	case c.options.Ask != nil:
		if answer, err = c.ask(ctx, d); err != nil {
			return "", err
		}
	}
	primary := answer == Primary && d.Primary != ""
	secondary := answer == Secondary && d.Secondary != ""
	c.ended.Declined = !primary
	return fmt.Sprintf(`{"primaryConfirmed":%t,"secondaryConfirmed":%t}`, primary, secondary), nil
}

// dialog runs the request function.
func (c *Call) dialog() (Dialog, error) {
	var text string
	var preview goja.Callable
	var failed error
	asked := false
	done := func(f goja.FunctionCall) goja.Value { //nolint:unparam // goja wants the result
		asked, text = true, jsonOf(f.Argument(0))
		preview, _ = goja.AssertFunction(f.Argument(1))
		return nil
	}
	threw := func(f goja.FunctionCall) goja.Value { //nolint:unparam // as above
		asked, failed = true, errors.New(f.Argument(0).String())
		return nil
	}
	err := c.do(func() error {
		_, err := c.script.request(goja.Undefined(), c.vm.ToValue(string(c.params)), c.vm.ToValue(done), c.vm.ToValue(threw))
		return err
	})
	if err == nil {
		err = c.drive(func() bool { return asked || c.isCancelled() })
	}
	switch {
	case c.isCancelled():
		return Dialog{}, errStopped
	case err != nil:
		return Dialog{}, err
	case failed != nil:
		return Dialog{}, failed
	}
	d, err := parseDialog([]byte(text))
	if err != nil {
		return Dialog{}, err
	}
	if d.Title == "" {
		d.Title = c.tool.Manifest.DisplayName
	}
	if strings.TrimSpace(d.Message) == "" { // it is a string, and people need something to read
		d.Message = d.Title
	}
	if c.look = preview; preview == nil {
		d.Preview = ""
	}
	return d, nil
}

// parseDialog reads what the request function returned (AT-64).
func parseDialog(text []byte) (Dialog, error) {
	var fields struct {
		Title     *string `json:"title"`
		Message   *string `json:"message"`
		Primary   *string `json:"primary"`
		Secondary *string `json:"secondary"`
		Preview   *string `json:"preview"`
	}
	if err := json.Unmarshal(text, &fields); err != nil || fields.Message == nil {
		return Dialog{}, errors.New("the approval request has no message, or a title or label that is no string")
	}
	or := func(s *string) string {
		if s == nil {
			return ""
		}
		return cut(*s)
	}
	return Dialog{
		Title: or(fields.Title), Message: or(fields.Message), Primary: or(fields.Primary),
		Secondary: or(fields.Secondary), Preview: or(fields.Preview),
	}, nil
}

// ask waits for the person, while the script's own jobs go on: a preview may be
// asked for. The Stop withdraws the question (AT-65).
func (c *Call) ask(ctx context.Context, d Dialog) (Answer, error) {
	ctx, withdraw := context.WithCancelCause(ctx)
	defer withdraw(errStopped)
	over := make(chan struct{})
	defer close(over)
	if d.Preview != "" {
		d.OnPreview = func(ctx context.Context) string { return c.preview(ctx, over) }
	}
	type reply struct {
		answer Answer
		err    error
	}
	var got *reply
	arrived := c.loop.await()
	go func() { // ends with ctx, which drive below does not outlive without it
		answer, err := c.options.Ask(ctx, d)
		arrived(func() error { got = &reply{answer, err}; return nil })
	}()
	c.asked = true
	err := c.drive(func() bool { return got != nil })
	c.asked = false
	c.endGlance()
	switch {
	case c.isCancelled():
		return Dismissed, errStopped
	case err != nil:
		return Dismissed, err
	case got.err != nil:
		return Dismissed, fmt.Errorf("ask: %w", got.err)
	}
	return got.answer, nil
}
