package proc

import "errors"

var (
	// ErrNotFound: the command does not exist, neither as a path nor in PATH.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable: the file exists, but cannot be executed (permission,
	// a directory, a format this system does not run).
	ErrNotExecutable = errors.New("command is not executable")
	// ErrStart: the command was found and could not be started for another
	// reason (working directory, resources, the guardian).
	ErrStart = errors.New("command could not be started")
	// ErrExited: the leader has already ended, so it cannot be signalled.
	ErrExited = errors.New("process has ended")
	// ErrSurvivors: selected processes are still alive; Report.Survivors
	// names them.
	ErrSurvivors = errors.New("processes are still alive")
	// ErrGuardianLost: the guardian died before its tree. The tree was taken
	// over and killed.
	ErrGuardianLost = errors.New("guardian died, its processes were killed")
	// ErrClosed: the tree was closed.
	ErrClosed = errors.New("tree is closed")
)
