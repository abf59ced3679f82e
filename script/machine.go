package script

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dop251/goja"
)

// machine makes the call's virtual machine, with everything that a script finds in
// it and nothing of the script itself.
func (c *Call) machine() error {
	code, err := prelude()
	if err != nil {
		return fmt.Errorf("prepare the script's world: %w", err)
	}
	c.vm = goja.New()
	c.vm.SetMaxCallStackSize(maxStack)
	return c.do(func() error {
		made, err := c.vm.RunProgram(code)
		if err != nil {
			return err
		}
		setUp, _ := goja.AssertFunction(made)
		web, err := c.web()
		if err != nil {
			return err
		}
		editor, err := c.openDesk(web)
		if err != nil {
			return err
		}
		world, err := setUp(goja.Undefined(), c.host(web, editor))
		if err != nil {
			return err
		}
		o := world.ToObject(c.vm)
		for name, to := range map[string]*goja.Callable{
			"kinds": &c.script.kinds, "request": &c.script.request, "execute": &c.script.execute,
			"cancel": &c.script.cancel,
		} {
			fn, ok := goja.AssertFunction(o.Get(name))
			if !ok {
				return fmt.Errorf("the prelude has no %s", name)
			}
			*to = fn
		}
		return nil
	})
}

// host is what the prelude may ask of this side. No script reaches it: every value
// that passes is a string, a number, a boolean or a function of the prelude's.
func (c *Call) host(web, editor goja.Value) *goja.Object {
	h := c.vm.NewObject()
	set := func(name string, v any) {
		if err := h.Set(name, v); err != nil {
			panic(c.vm.NewGoError(err))
		}
	}
	set("name", c.tool.Manifest.DisplayName)
	set("id", c.tool.Manifest.ID)
	set("metadata", c.tool.metadata())
	set("missing", missing)
	set("web", web)
	set("editor", editor)
	set("cancelled", c.isCancelled)
	set("log", c.print)
	set("report", c.report)
	set("test", c.noteTest)
	set("exit", func(f goja.FunctionCall) goja.Value {
		if c.asked {
			panic(c.vm.NewGoError(errPreviewExit))
		}
		if c.phase != finished && !c.exited && !c.isHanding() { // inside onCancel it would lose what that returns
			c.exited, c.exit = true, []byte(jsonOf(f.Argument(0)))
			c.vm.Interrupt(errExit)
		}
		return nil
	})
	set("pattern", func(pattern string) map[string]any {
		text, err := SpellPattern(pattern)
		if err != nil {
			return map[string]any{"mistake": err.Error()}
		}
		return map[string]any{"text": text}
	})
	set("timer", c.timer)
	set("clear", func(id float64) { c.loop.stop(int64(id)) })
	set("getState", func(key string) any {
		if v, ok := c.state.get(key); ok {
			return v
		}
		return goja.Undefined()
	})
	set("setState", c.state.set)
	set("removeState", c.state.remove)
	set("clearState", c.state.clear)
	return h
}

// timer is setTimeout, or with every setInterval; ms is not negative.
func (c *Call) timer(fn goja.Callable, ms float64, every bool) int64 {
	wait, repeat := time.Duration(min(ms, math.MaxInt32))*time.Millisecond, time.Duration(0)
	if every {
		repeat = max(wait, time.Millisecond)
	}
	return c.loop.after(wait, repeat, func() error { return c.invoke(fn) })
}

// invoke runs a function that nobody waits for. What it throws is logged; an
// interrupt is returned.
func (c *Call) invoke(fn goja.Callable) error {
	_, err := fn(goja.Undefined())
	if interrupted := (*goja.InterruptedError)(nil); err == nil || errors.As(err, &interrupted) {
		return err
	}
	if !c.isCancelled() {
		c.print("error", "uncaught: "+c.thrown(err))
	}
	return nil
}

// missing are the namespaces of the device that do not exist here, and say so when
// they are touched (AT-79).
var missing = []string{
	"Location", "Health", "Photos", "FileManager", "Calendar", "CalendarEvent", "Reminder", "Contact", "Notification",
	"Device", "Clipboard", "Pasteboard", "Dialog", "Navigation", "Keychain", "Storage", "Speech", "Assistant",
	"WebViewController", "DocumentPicker", "QuickLook", "ShareSheet", "Safari", "BLE", "AVPlayer", "AudioRecorder",
	"MediaPlayer", "Motion", "Widget", "LiveActivity", "Vision", "QRCode", "Mail", "MessageUI", "LocalAuth", "SQLite",
}
