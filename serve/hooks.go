package serve

import (
	"maps"
	"slices"

	"github.com/belayhq/belay/hook"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
)

// hooksOf is the configuration's stop hooks; nil if there are none.
func hooksOf(s config.Stop, dir string) *hook.Hooks {
	h := &hook.Hooks{
		Tell: actionOf(s.Tell, dir), Terminate: actionOf(s.Terminate, dir),
		Kill: actionOf(s.Kill, dir), Alive: actionOf(s.Alive, dir),
	}
	if *h == (hook.Hooks{}) {
		return nil
	}
	return h
}

func actionOf(c *config.Hook, dir string) *hook.Action {
	if c == nil {
		return nil
	}
	a := &hook.Action{Command: c.Command, Dir: dir, Timeout: c.Timeout.Value, Yes: c.Yes, No: c.No}
	if c.HTTP != nil {
		a.HTTP = &hook.HTTP{Method: c.HTTP.Method.Value, URL: c.HTTP.URL, Body: c.HTTP.Body, Socket: c.HTTP.Socket}
		for _, name := range slices.Sorted(maps.Keys(c.HTTP.Headers)) {
			a.HTTP.Header = append(a.HTTP.Header, hook.Header{Name: name, Value: c.HTTP.Headers[name]})
		}
	}
	return a
}

// factsFor adds the server's own spare rules to what is known.
func (d *Definition) factsFor(o *Options) *peers.Facts {
	rules := make([]proc.SpareRule, 0, len(d.Spare))
	for _, r := range d.Spare {
		rules = append(rules, proc.SpareRule{Comm: r.Comm, Args: r.Args, NotArgs: r.NotArgs, Why: r.Why})
	}
	return o.Facts.Sparing(rules)
}

// checkHooks refuses hooks that cannot be run.
func (d *Definition) checkHooks() error {
	if err := hooksOf(d.Stop, d.Dir).Validate(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Tools)) {
		if err := hooksOf(d.Tools[name].Stop, d.Dir).Validate(); err != nil {
			return err
		}
	}
	return nil
}
