package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/lint"
)

type toolCheckCmd struct {
	Types  string   `default:"auto" enum:"auto,local,off" help:"Which TypeScript compiler checks the types: the project's, or that on PATH (local), or else one that npx gets (auto); or none (off)."`
	Strict bool     `help:"Warnings count as errors."`
	JSON   bool     `name:"json" help:"Print JSON: an array, one object for each project."`
	Dir    []string `arg:"" name:"dir" type:"path" help:"Projects, or folders of projects."`
}

// Help implements kong.HelpProvider.
func (*toolCheckCmd) Help() string {
	return `Looks for mistakes without calling the tool: in the manifest, in the script, in what it registers, in how it deals with a Stop
(onCancel set where it has no effect, say), and for uses of what does not exist here. Each finding has its file, line and column.
Types are checked by a TypeScript compiler, against the types that Belay knows ("belay tool types" writes them for editors).

Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 could not check, 4 no project in the folder.

Examples:

    belay tool check ./tools/feeds
    belay tool check --strict --json ./tools`
}

// checked is what was found in one project; the shape that --json prints.
type checked struct {
	Dir string `json:"dir"`
	lint.Report
	Types string `json:"types"` // what checked the types, or why nothing did
}

// Run checks every project.
func (c *toolCheckCmd) Run(env *Env) error {
	ctx, stop := interruptible()
	defer stop()
	projects, err := c.projects()
	if err != nil {
		return err
	}
	tsc := newTypeChecker(c.Types)
	all := make([]checked, 0, len(projects))
	ids := make(map[string]string)
	for _, dir := range projects {
		one, err := checkProject(ctx, dir)
		if err != nil {
			if ctx.Err() != nil {
				return exitWith(ExitStopped)
			}
			return exitErrorf(ExitUsage, "tool check: %w", err)
		}
		if before, twice := ids[one.ID]; twice && one.ID != "" {
			one.Findings = append(one.Findings, lint.Finding{
				Level: lint.Error, Rule: "duplicate", File: script.ManifestFile, Text: fmt.Sprintf("the id %q is that of %s: of two the later is refused", one.ID, before),
			})
		}
		ids[one.ID] = dir
		if one.Source != "" {
			tsc.check(ctx, one)
		}
		if ctx.Err() != nil {
			return exitWith(ExitStopped)
		}
		all = append(all, *one)
	}
	if c.JSON {
		if err := printJSON(env.Stdout, all); err != nil {
			return err
		}
	} else {
		printChecked(env, all)
	}
	return exitWith(c.code(all))
}

// code is the exit code.
func (c *toolCheckCmd) code(all []checked) int {
	for i := range all {
		for _, f := range all[i].Findings {
			if f.Level == lint.Error || c.Strict && f.Level == lint.Warning {
				return ExitFailed
			}
		}
	}
	return ExitDone
}

// projects are the folders to be checked: those that were named, or the projects in
// them.
func (c *toolCheckCmd) projects() ([]string, error) {
	var all []string
	for _, dir := range c.Dir {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			return nil, usagef("tool check: %s is no folder", dir)
		}
		if script.IsProject(dir) {
			all = append(all, dir)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, usagef("tool check: %v", err)
		}
		before := len(all)
		for _, e := range entries {
			if sub := filepath.Join(dir, e.Name()); script.IsProject(sub) {
				all = append(all, sub)
			}
		}
		if len(all) == before {
			return nil, exitErrorf(ExitNothing, "tool check: %s is no project and holds none (%s)", dir, script.ManifestFile)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// checkLimit bounds one check: the top level has 5 s, reading it takes far less.
const checkLimit = 30 * time.Second

var errCheckLimit = fmt.Errorf("it took more than %s", checkLimit)

// checkProject checks one project in a process of its own; how that may end is a
// finding, too.
func checkProject(ctx context.Context, dir string) (*checked, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeoutCause(ctx, checkLimit, errCheckLimit)
	defer end()
	// The editor is assumed to be there: whether it is, the configuration says.
	cmd := exec.CommandContext(ctx, self, "script-check", "--editor", "--", dir)
	cmd.Env, cmd.WaitDelay = proc.Environment(), time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	one := &checked{Dir: dir}
	exit, died := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		if err := json.Unmarshal(stdout.Bytes(), &one.Report); err != nil {
			return nil, fmt.Errorf("check %s: the report cannot be read: %w", dir, err)
		}
		return one, nil
	case errors.Is(context.Cause(ctx), errCheckLimit):
		one.dies("the script's top level could not be ended: " + errCheckLimit.Error())
	case died && memcap.Died(exit.ExitCode(), stderr.Bytes()):
		one.dies("the script's top level ran out of memory")
	case died:
		one.dies("the script's top level ended its process: " + fit(oneLine(strings.TrimSpace(stderr.String())), 200))
	default:
		return nil, fmt.Errorf("check %s: %w", dir, err)
	}
	return one, nil
}

// dies notes that the check did not come to its end.
func (c *checked) dies(text string) {
	c.Findings = append(c.Findings, lint.Finding{Level: lint.Error, Rule: "registration", Text: text})
}

// printChecked writes the findings, each on a line that editors and people can
// follow.
func printChecked(env *Env, all []checked) {
	st := styleOf(env.Stdout, env.Getenv)
	here, _ := os.Getwd()
	var errs, warns, notes int
	for i := range all {
		p := &all[i]
		slices.SortStableFunc(p.Findings, func(a, b lint.Finding) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		for _, f := range p.Findings {
			where := filepath.Join(p.Dir, filepath.FromSlash(f.File))
			if rel, err := filepath.Rel(here, where); err == nil && filepath.IsLocal(rel) {
				where = rel
			}
			if f.Line > 0 {
				where += fmt.Sprintf(":%d", f.Line)
				if f.Column > 0 {
					where += fmt.Sprintf(":%d", f.Column)
				}
			}
			t := faint
			switch f.Level {
			case lint.Error:
				t = bad
				errs++
			case lint.Warning:
				t = warn
				warns++
			default:
				notes++
			}
			fmt.Fprintf(env.Stdout, "%s: %s: %s [%s]\n", oneLine(where), st.paint(t, string(f.Level)), oneLine(f.Text), f.Rule)
		}
	}
	for _, text := range typeWords(all) {
		env.Warnf("types: %s", text)
	}
	env.Warnf("%s checked: %s, %s, %s", count(len(all), "project"), count(errs, "error"), count(warns, "warning"), count(notes, "note"))
}

// typeWords says who checked the types, once each.
func typeWords(all []checked) []string {
	var words []string
	for i := range all {
		if t := all[i].Types; t != "" && !slices.Contains(words, t) {
			words = append(words, t)
		}
	}
	return words
}
