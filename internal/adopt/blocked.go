package adopt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// blocked says why a file is left alone (DESIGN 11, 12), or is empty.
func (o *Options) blocked(ctx context.Context, s *snapshot) string {
	if o.Force {
		return ""
	}
	if why := o.Editors.managedBy(o.Host, s.real); why != "" {
		return why
	}
	if s.info.Mode().Perm()&0o200 == 0 {
		return "it is read-only"
	}
	if why := ownership(s.info); why != "" {
		return why
	}
	return tracked(ctx, s.real)
}

// gitLimit bounds how long git may take; it reads one index.
const gitLimit = 10 * time.Second

var errGitSlow = errors.New("git took too long")

// tracked says why a file in a git work tree is left alone: other people share
// what is tracked, and the path of this machine's Belay is nothing for them.
// Where git cannot be asked the file counts as tracked.
func tracked(ctx context.Context, target string) string {
	if !inWorkTree(filepath.Dir(target)) {
		return ""
	}
	ctx, end := context.WithTimeoutCause(ctx, gitLimit, errGitSlow)
	defer end()
	// What a repository's own configuration would run stays off: its owner
	// need not be this user.
	cmd := exec.CommandContext(ctx, "git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath="+os.DevNull,
		"ls-files", "--error-unmatch", "--", filepath.Base(target))
	cmd.Dir = filepath.Dir(target)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	err := cmd.Run()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return "git tracks it, so other people share it"
	case ended && exit.ExitCode() == 1:
		return "" // git's answer for a file that it does not track
	case errors.Is(err, exec.ErrNotFound):
		return "it lies in a git work tree, and there is no git to ask whether it is tracked"
	case ended:
		return "it lies in a git work tree, and git does not say whether it is tracked"
	}
	return "it lies in a git work tree, and git could not be asked whether it is tracked: " + err.Error()
}

// inWorkTree looks for .git, a folder or (in worktrees and submodules) a file.
func inWorkTree(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}
