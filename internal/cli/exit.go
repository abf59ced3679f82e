package cli

import (
	"errors"
	"fmt"

	"github.com/belayhq/belay"
)

// The exit codes of every command (DESIGN, names and numbers).
const (
	ExitDone        = 0   // done; for cancel: every receipt may be called done
	ExitFailed      = 1   // it failed
	ExitUsage       = 2   // the command line is wrong, or the command could not be run
	ExitUnconfirmed = 3   // stopped, but the end of the work is not confirmed
	ExitNothing     = 4   // no run matched
	ExitAgentKilled = 5   // the agent had to be killed
	ExitSurvivors   = 6   // processes were left alive
	ExitStopped     = 130 // a Stop or Ctrl-C ended it
)

// exitError carries an exit code that the error itself does not imply.
type exitError struct {
	code int
	err  error // nil: everything has been said already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitWith ends the command with a code and without another word; nil for
// ExitDone.
func exitWith(code int) error {
	if code == ExitDone {
		return nil
	}
	return &exitError{code: code}
}

// exitErrorf ends the command with a code and one line on standard error.
func exitErrorf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// usagef is a mistake in the command line: exit code 2.
func usagef(format string, args ...any) error {
	return exitErrorf(ExitUsage, format, args...)
}

// exitCode is where errors become exit codes.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return belay.ExitCode(err)
}

// exitText is what standard error says about err; empty if nothing is left to
// be said.
func exitText(err error) string {
	e, ok := errors.AsType[*exitError](err)
	if err == nil || ok && e.err == nil {
		return ""
	}
	return err.Error()
}
