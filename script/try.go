package script

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dop251/goja"
)

// try runs the script's top level once, as every call will, and looks at what it
// registered (AT-42, AT-86).
func (t *Tool) try() error {
	c := t.call([]byte("{}"), Options{})
	defer c.close()
	c.tests = &t.tests
	if err := c.start(); err != nil {
		if interrupted := (*goja.InterruptedError)(nil); errors.As(err, &interrupted) {
			if why, ok := interrupted.Value().(error); ok {
				return why
			}
		}
		return fmt.Errorf("%w: its top level threw: %s", ErrRegistration, place(err))
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
func place(err error) string {
	exception := (*goja.Exception)(nil)
	if errors.As(err, &exception) {
		return exception.Error()
	}
	return err.Error()
}
