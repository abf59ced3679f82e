package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/belayhq/belay"
)

// Toolset is what a [Handler] serves. [NewToolset] makes one of Go functions.
// Safe for concurrent use.
type Toolset interface {
	// Manifest is what the caller may see. Its Endpoint is filled in by the Handler.
	Manifest(ctx context.Context, caller string) (*Manifest, error)

	// Prepare looks whether the call can be carried out, and returns what does it.
	// It may take its time: the call has been acknowledged. Its error is the call's
	// result, and nothing was started; ctx is that of the call.
	Prepare(ctx context.Context, j *Job) (Func, error)
}

// ThreadCloser is a [Toolset] that keeps something for threads. CloseThread is
// called, on a goroutine that the Handler waits for, when a caller has closed a
// thread, after the thread's calls were stopped (RAP-88). Most threads are unknown.
type ThreadCloser interface {
	CloseThread(ctx context.Context, caller, thread string)
}

// Func does the work of a call. ctx ends when the call is stopped, with a
// *belay.Cancellation as its cause. What it returns then, without an error, is taken
// for the partial result (see also [Job.Partial]); its return is the evidence that the work has ended, so everything that
// the work has started must be over by then. Where that cannot be said, the error
// wraps [ErrUnproven].
//
// The text of an error goes to the model: it should say what to do next, and hold
// no secrets. One that wraps belay.ErrDeclined means that a person said no.
type Func func(ctx context.Context, j *Job) (Result, error)

// ErrUnproven is returned by a [Func] that was stopped and cannot say whether its
// work has ended. The receipt then says no more than what else was seen.
var ErrUnproven = errors.New("whether the work has ended is not known")

// Result is what a call gives: a text, or content in its place.
type Result struct {
	Text      string
	Content   []Item
	DisplayAs json.RawMessage // see [ToolResult]
	Declined  bool            // a person did not allow what was asked for: the run ends declined
}

// Operation is a tool with the function behind it.
type Operation struct {
	Tool
	Run Func

	// Check judges arguments, which are a JSON object, before Run gets them: package
	// rap/schema makes one of the tool's InputSchema. Nil: the members that the
	// schema requires must be there.
	Check func(arguments json.RawMessage) error
}

// NewToolset returns a set of these operations. m says how it is called; its
// Tools and Endpoint are ignored. Errors name the tool that is no good.
func NewToolset(m Manifest, operations ...Operation) (Toolset, error) {
	t := &toolset{manifest: m, operations: map[string]*Operation{}}
	t.manifest.Tools = nil
	for _, o := range operations {
		if o.Run == nil {
			return nil, fmt.Errorf("%w: tool %q has nothing that runs it", belay.ErrBadRequest, o.Name)
		}
		if len(o.InputSchema) == 0 {
			o.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		if o.Check == nil {
			o.Check = requiring(o.InputSchema)
		}
		t.operations[o.Name] = &o
		t.manifest.Tools = append(t.manifest.Tools, o.Tool)
	}
	whole := t.manifest
	whole.Endpoint = "http://localhost/" // its own is filled in later
	if err := whole.check(); err != nil {
		return nil, err
	}
	return t, nil
}

type toolset struct {
	manifest   Manifest
	operations map[string]*Operation
}

// Manifest implements [Toolset].
func (t *toolset) Manifest(context.Context, string) (*Manifest, error) {
	m := t.manifest
	m.Tools = slices.Clone(m.Tools)
	return &m, nil
}

// Prepare implements [Toolset].
func (t *toolset) Prepare(_ context.Context, j *Job) (Func, error) {
	o := t.operations[j.Operation()]
	if o == nil {
		return nil, fmt.Errorf("%w: there is no tool %q here; ask for the list of tools again", ErrArguments, j.Operation())
	}
	if err := o.Check(j.Arguments()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return o.Run, nil
}

// requiring is the check of a schema without a validator.
func requiring(schema json.RawMessage) func(json.RawMessage) error {
	var s struct {
		Required []string `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // a schema of another shape is refused where the tool is
	if len(s.Required) == 0 {
		return func(json.RawMessage) error { return nil } // that it is an object is known
	}
	return func(arguments json.RawMessage) error {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(arguments, &members); err != nil {
			return fmt.Errorf("the arguments cannot be read: %w", err)
		}
		for _, name := range s.Required {
			if _, ok := members[name]; !ok {
				return fmt.Errorf("the argument %q is missing", name)
			}
		}
		return nil
	}
}
