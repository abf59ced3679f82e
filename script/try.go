package script

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dop251/goja"
)

// tryLimit is when a top level is given up that no interrupt reaches.
const tryLimit = TopLevelLimit + time.Second

// try is register with an end. A builtin that runs on cannot be ended from here: its
// goroutine stays until it ends, or the process does.
func (t *Tool) try() error {
	tried := make(chan error, 1)
	go func() { tried <- t.register() }() // see above; nothing of it is used once it was given up
	limit := time.NewTimer(tryLimit)
	defer limit.Stop()
	select {
	case err := <-tried:
		return err
	case <-limit.C:
		return fmt.Errorf("%w, inside a builtin that cannot be interrupted", errTopLevel)
	}
}

// tryHere is try with the error of a load.
func (t *Tool) tryHere() error {
	if err := t.try(); err != nil {
		return fmt.Errorf("load %s: %w", t.Dir, err)
	}
	return nil
}

// register runs the script's top level once, as every call will, and looks at what
// it registered (AT-42, AT-86).
func (t *Tool) register() error {
	c := t.call([]byte("{}"), Options{})
	defer c.close()
	c.tests = &t.tests
	if err := c.start(); err != nil {
		if interrupted := (*goja.InterruptedError)(nil); errors.As(err, &interrupted) {
			if why, ok := interrupted.Value().(error); ok {
				return why
			}
		}
		return fmt.Errorf("%w: its top level threw: %s", ErrRegistration, c.place(err))
	}
	var kinds []string
	if err := c.do(func() error {
		list, err := c.script.kinds(goja.Undefined())
		if err != nil {
			return err
		}
		return c.vm.ExportTo(list, &kinds)
	}); err != nil {
		return fmt.Errorf("%w: %w", ErrRegistration, err)
	}
	wanted := []string{"registerExecuteTool"}
	if t.Manifest.RequireApproval {
		wanted = []string{"registerApprovalRequest", "registerExecuteToolWithApproval"}
	}
	for _, kind := range wanted {
		if slices.Contains(kinds, kind) {
			continue
		}
		if len(kinds) == 1 && kinds[0] == "registerUIView" {
			return fmt.Errorf("%w: it only registers a view: needs a user interface", ErrUnsupported)
		}
		return fmt.Errorf("%w: requireApproval is %t, so AssistantTool.%s must be called; it called %q",
			ErrRegistration, t.Manifest.RequireApproval, kind, kinds)
	}
	return nil
}

// place is what was thrown, with the line that threw it.
func (c *Call) place(err error) string {
	text, exception := c.thrown(err), (*goja.Exception)(nil)
	if !errors.As(err, &exception) || len(exception.Stack()) == 0 {
		return text
	}
	var at bytes.Buffer
	frame := exception.Stack()[0]
	frame.Write(&at)
	return text + " at " + at.String()
}
