package cli

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/belayhq/belay/internal/adopt"
	"github.com/belayhq/belay/internal/peers"
)

type adoptCmd struct {
	Files  []string `arg:"" optional:"" name:"file" help:"Configuration files of editors; without one, those that are found are listed and nothing is changed."`
	DryRun bool     `short:"n" help:"Print what would change as a diff, and change nothing. It shows lines of the files as they are."`
	Undo   bool     `help:"Take them out again, entry by entry."`
	Remote bool     `help:"Take remote servers through a running belay serve."`
	Serve  string   `placeholder:"URL" help:"Where belay serve listens; default: http://127.0.0.1:7474."`
	Only   []string `placeholder:"NAME" sep:"none" help:"Only the server or agent of this name, also if it would be left alone (repeat it for several)."`
	Skip   []string `placeholder:"NAME" sep:"none" help:"Not the server or agent of this name (repeat it for several)."`
	Belay  string   `placeholder:"PATH" help:"The belay that entries start, absolute; default: this one, by a path that an update does not change."`
	Force  bool     `help:"Also files that belong to a policy or somebody else, are read-only, or are tracked by git."`
	JSON   bool     `name:"json" help:"Print JSON: an array of files, each with its servers."`
}

// Help implements kong.HelpProvider.
func (*adoptCmd) Help() string {
	return `Rewrites the configuration of editors and agents so that every MCP server that they start runs under belay wrap, and every
agent that an editor starts over ACP under belay acp. Known are the forms of Claude Desktop, Claude Code, Cursor, VS Code, Zed,
JetBrains, Windsurf, Gemini CLI and all who do as they do. Order, formatting and comments stay, and so does everything else in an
entry; the command stays as it is written: Belay looks it up in the PATH that the editor gives it, as the editor would have done.
For each server is shown

  safe      it loses nothing by a restart, so force may be used on it when a Stop needs it
  stateful  a restart loses something: it is kept, force only on signs of life or a second Stop
  unknown   nothing is known about it: treated as stateful
  agent     no server: an agent, to which the editor speaks ACP

or why it is left alone. Editors read their files when they start or reload their servers.

Exit codes: 0 done or nothing left to do, 1 a file failed, 2 wrong use, 4 no server or file was there to be adopted.

Examples:

    belay adopt                                   what is on this machine
    belay adopt ~/.cursor/mcp.json --dry-run
    belay adopt ~/.config/zed/settings.json ~/.jetbrains/acp.json
    belay adopt ~/.cursor/mcp.json .mcp.json --skip browser
    belay adopt --undo ~/.cursor/mcp.json`
}

// adopting is one run of the command.
type adopting struct {
	*adoptCmd
	env     *Env
	options *adopt.Options
	st      style

	listing bool
	files   []fileResult
	shown   bool // something was printed
	failed  bool
	matched int             // servers that are, or would be, as they should
	seen    map[string]bool // names of servers and agents
}

// fileResult is what --json prints about a file.
type fileResult struct {
	File    string         `json:"file"`
	Real    string         `json:"real,omitempty"` // behind symbolic links
	Editor  string         `json:"editor,omitempty"`
	Forms   []string       `json:"forms,omitempty"`
	Blocked string         `json:"blocked,omitempty"` // why it is left alone
	Error   string         `json:"error,omitempty"`
	Changed bool           `json:"changed"` // it has been written
	Servers []adopt.Server `json:"servers"`
	Diff    string         `json:"diff,omitempty"` // with --dry-run
}

// Run adopts files, or undoes it.
func (c *adoptCmd) Run(env *Env) error {
	if err := c.check(); err != nil {
		return err
	}
	options, err := c.options(env)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	a := &adopting{adoptCmd: c, env: env, options: options, st: styleOf(env.Stdout, env.Getenv), seen: map[string]bool{}, listing: len(c.Files) == 0}
	paths := c.Files
	if a.listing {
		for _, p := range options.Editors.Find(options.Host) {
			paths = append(paths, p.Path)
		}
	}
	for _, path := range paths {
		if ctx.Err() != nil {
			return exitWith(ExitStopped)
		}
		a.file(ctx, path)
	}
	return a.end()
}

// check refuses what cannot be meant.
func (c *adoptCmd) check() error {
	switch {
	case slices.Contains(c.Files, ""):
		return usagef("adopt: a file's name is empty")
	case c.Undo && c.Remote:
		return usagef("adopt: --undo takes remote servers out, too: leave out --remote")
	case c.Serve != "" && !c.Remote:
		return usagef("adopt: --serve says where --remote leads; give that, too")
	case c.Belay != "" && (!filepath.IsAbs(c.Belay) || !utf8.ValidString(c.Belay)):
		return usagef("adopt: --belay %q: want an absolute path; editors have another PATH than this shell", c.Belay)
	}
	for _, name := range c.Only {
		if slices.Contains(c.Skip, name) {
			return usagef("adopt: %q is both in --only and in --skip", name)
		}
	}
	if c.Serve != "" {
		u, err := url.Parse(c.Serve)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return usagef("adopt: --serve %q: want an address such as %s", c.Serve, adopt.DefaultServe)
		}
	}
	return nil
}

func (c *adoptCmd) options(env *Env) (*adopt.Options, error) {
	facts, err := peers.Load()
	if err != nil {
		env.Warnf("%v", err)
	}
	editors, err := adopt.Load(env.Getenv)
	switch {
	case editors == nil:
		return nil, err
	case err != nil:
		env.Warnf("%v", err)
	}
	self := c.Belay
	if self == "" {
		self, err = adopt.Self(env.Getenv)
		switch {
		case err != nil && c.Undo:
			self = "belay" // undoing only needs to recognize it
		case err != nil:
			return nil, exitErrorf(ExitUsage, "adopt: %w (or say --belay PATH)", err)
		}
	}
	return &adopt.Options{
		Belay: self, Undo: c.Undo, Remote: c.Remote, Serve: c.Serve, Only: c.Only, Skip: c.Skip, Force: c.Force,
		Facts: facts, Editors: editors, Host: adopt.ThisHost(env.Getenv),
	}, nil
}

// file does one file and says what became of it.
func (a *adopting) file(ctx context.Context, path string) {
	r := fileResult{File: path, Editor: a.options.Editors.EditorOf(a.options.Host, path), Servers: []adopt.Server{}}
	plan, err := adopt.Open(ctx, path, a.options)
	if err != nil {
		if !a.listing || !errors.Is(err, adopt.ErrNoServers) { // settings without servers are no news in a list
			a.fail(r, err)
		}
		return
	}
	if slices.ContainsFunc(a.files, func(f fileResult) bool { return f.Real == plan.Real }) {
		return // named twice, or behind two links
	}
	r.fill(plan)
	a.show(&r)
	switch {
	case plan.Blocked != "" || plan.Changes() == 0:
	case a.DryRun:
		r.Diff = string(plan.Diff())
		a.showDiff(r.Diff)
	case a.listing:
	default:
		done, err := plan.Commit(ctx)
		if err != nil {
			a.fail(r, err)
			return
		}
		if !reflect.DeepEqual(done.Servers, plan.Servers) {
			r.fill(done)
			a.sayf("The file was changed by somebody meanwhile; this is what was done:")
			a.show(&r)
		}
		r.Changed = done.Blocked == "" && done.Changes() > 0
	}
	a.count(&r)
	a.sayDone(&r)
	a.files = append(a.files, r)
}

func (r *fileResult) fill(p *adopt.Plan) {
	r.Real, r.Forms, r.Blocked, r.Servers = p.Real, p.Forms, p.Blocked, p.Servers
	if r.Servers == nil {
		r.Servers = []adopt.Server{}
	}
}

// fail notes a file that nothing was done to. A file without servers is none
// that failed: nothing in it was there to be adopted.
func (a *adopting) fail(r fileResult, err error) {
	r.Error = err.Error()
	a.files = append(a.files, r)
	a.failed = a.failed || !errors.Is(err, adopt.ErrNoServers)
	a.env.Warnf("adopt: %v", err)
}

func (a *adopting) count(r *fileResult) {
	for _, s := range r.Servers {
		a.seen[s.Name] = true
		if a.listing || r.Blocked == "" && (s.Action.Changes() || s.Action == adopt.Keep) {
			a.matched++
		}
	}
}

// end prints what is left to be said and finds the exit code.
func (a *adopting) end() error {
	if a.JSON {
		if err := printJSON(a.env.Stdout, a.files); err != nil {
			return err
		}
	} else {
		a.sayServe()
		a.sayNext()
	}
	for _, name := range slices.Concat(a.Only, a.Skip) {
		if !a.seen[name] {
			a.env.Warnf("adopt: no server or agent is named %q", name)
		}
	}
	switch {
	case a.failed:
		return exitWith(ExitFailed)
	case a.matched > 0:
		return nil
	case a.listing:
		return exitErrorf(ExitNothing, "adopt: no file with MCP servers or agents was found at the places that are known; name it (see \"belay adopt --help\")")
	case a.Undo:
		return exitErrorf(ExitNothing, "adopt: nothing was there to be undone")
	}
	return exitErrorf(ExitNothing, "adopt: nothing was there to be adopted")
}
