package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// run carries out one action and returns its code: exit code or status. Errors
// wrap ErrFill, ErrTime or ErrFailed, or are the cause of ctx.
func (s *Stop) run(ctx context.Context, step Step, c *belay.Cancellation) (code int, err error) {
	a := s.hooks.action(step)
	if err := a.validate(step); err != nil { // nobody called Validate
		return 0, fmt.Errorf("%w: %s: %w", ErrConfig, step, err)
	}
	leave, err := enter(ctx, step)
	if err != nil {
		return 0, err
	}
	defer leave()
	v := values{call: &s.call, used: new([]string)}
	if c != nil {
		v.reason, v.cause = c.Reason, c.Cause
	}
	began := time.Now()
	limited, end := context.WithTimeoutCause(ctx, a.timeout(), fmt.Errorf("%w: no end within %s", ErrTime, a.timeout()))
	defer end()
	var said string
	if a.HTTP != nil {
		code, said, err = a.HTTP.request(limited, step, v)
	} else {
		code, said, err = s.runCommand(limited, step, a, v)
	}
	name := a.name(s.call.Redact)
	s.log(step, name, code, v.hide(said), time.Since(began), err)
	switch {
	case err == nil:
		return code, nil
	case ctx.Err() != nil && !errors.Is(err, ErrFill):
		return 0, context.Cause(ctx)
	case errors.Is(err, ErrFill), errors.Is(err, ErrTime):
		return 0, fmt.Errorf("%s hook %q: %w", step, name, err)
	}
	return 0, fmt.Errorf("%s hook %q: %w: %w", step, name, ErrFailed, s.harmless(err))
}

func (s *Stop) runCommand(ctx context.Context, step Step, a *Action, v values) (code int, said string, err error) {
	args, err := argv(a.Command, v)
	if err != nil {
		return 0, "", err
	}
	return a.command(ctx, args, environment(step, v), s.call.Run.String())
}

// environment is what a command learns beside its arguments.
func environment(step Step, v values) []string {
	clip := func(text string) string {
		text = strings.ReplaceAll(text, "\x00", "")
		return text[:min(len(text), maxValue)]
	}
	return []string{
		"BELAY_STEP=" + string(step),
		"BELAY_RUN=" + v.call.Run.String(),
		"BELAY_SERVER=" + clip(v.call.Server),
		"BELAY_TOOL=" + clip(v.call.Tool),
		"BELAY_REQUEST_ID=" + clip(v.call.RequestID),
		"BELAY_REASON=" + belay.CleanReason(v.reason),
		"BELAY_CAUSE=" + string(v.cause),
	}
}

// act carries out tell, terminate or kill and judges its code.
func (s *Stop) act(ctx context.Context, step Step, c *belay.Cancellation) error {
	a := s.hooks.action(step)
	if a == nil {
		return nil
	}
	code, err := s.run(ctx, step, c)
	if err != nil {
		return err
	}
	if ok := slices.Contains(a.Yes, code); ok || len(a.Yes) == 0 && a.fine(code) {
		return nil
	}
	what := "exit code"
	if a.HTTP != nil {
		what = "status"
	}
	return fmt.Errorf("%s hook %q: %w: %s %d", step, a.name(s.call.Redact), ErrFailed, what, code)
}

// fine reports whether the code means success where nothing else is said.
func (a *Action) fine(code int) bool {
	if a.HTTP != nil {
		return code >= 200 && code < 300
	}
	return code == 0
}

// check says what a code of alive means.
func (a *Action) check(code int) (alive, known bool) {
	yes, no := a.Yes, a.No
	if len(yes) == 0 {
		yes = []int{0}
		if a.HTTP != nil {
			yes = []int{200}
		}
	}
	if len(no) == 0 {
		no = []int{1}
		if a.HTTP != nil {
			no = []int{404, 410}
		}
	}
	alive = slices.Contains(yes, code)
	return alive, alive || slices.Contains(no, code)
}

// harmless cuts from an error what a call put in: the text of one that package
// net made holds the filled URL.
func (s *Stop) harmless(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

// log says what became of an action; what it printed only if it can be redacted.
func (s *Stop) log(step Step, name string, code int, said string, took time.Duration, err error) {
	if s.call.Log == nil {
		return
	}
	attrs := []any{"run", s.call.Run, "step", step, "hook", name, "took", took.Round(time.Millisecond)}
	if s.call.Redact != nil && said != "" {
		attrs = append(attrs, "said", s.call.Redact(said))
	}
	switch {
	case err != nil:
		s.call.Log.Warn("a stop hook failed", append(attrs, "error", s.harmless(err))...)
	case step == Alive:
		s.call.Log.Debug("a stop hook ran", append(attrs, "code", code)...)
	default:
		s.call.Log.Info("a stop hook ran", append(attrs, "code", code)...)
	}
}
