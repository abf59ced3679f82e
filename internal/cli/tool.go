package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/belayhq/belay/script/types"
)

// toolCmd is for authors of scripted tools.
type toolCmd struct {
	New   toolNewCmd   `cmd:"" help:"Make a project that runs."`
	Serve toolServeCmd `cmd:"" help:"Serve tools on standard input and output, to any MCP client."`
	Run   toolRunCmd   `cmd:"" help:"Call a tool, with progress and a Stop by Ctrl-C."`
	Check toolCheckCmd `cmd:"" help:"Look for mistakes: manifest, script, types."`
	Types toolTypesCmd `cmd:"" help:"Write the types into a project, for editors."`
}

// Help implements kong.HelpProvider.
func (*toolCmd) Help() string {
	return `Scripted tools are folders with assistant_tool.json, which says what the tool is, and assistant_tool.tsx, which does it.
"belay serve" shows them to callers; the commands here are for writing them.

Examples:

    belay tool new count_words
    belay tool run count_words --params '{"text": "one two"}'
    belay tool check count_words`
}

type toolTypesCmd struct {
	Dir []string `arg:"" optional:"" default:"." type:"path" help:"A project, or a folder of projects."`
}

// Help implements kong.HelpProvider.
func (*toolTypesCmd) Help() string {
	return `Writes types/scripting.d.ts, in place of an older one, and tsconfig.json if there is none. Editors that know TypeScript
complete and check AssistantTool and import … from "scripting" with them. Belay itself runs a script without.

Examples:

    belay tool types
    belay tool types ./tools`
}

// Run writes the types.
func (c *toolTypesCmd) Run(env *Env) error {
	for _, dir := range c.Dir {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return usagef("tool types: %s is no folder", dir)
		}
		written, err := types.Write(dir)
		if err != nil {
			return exitErrorf(ExitFailed, "tool types: %w", err)
		}
		for _, name := range written {
			fmt.Fprintln(env.Stdout, filepath.Join(dir, filepath.FromSlash(name)))
		}
		if len(written) == 0 {
			env.Warnf("tool types: %s is up to date", dir)
		}
	}
	return nil
}

// writeNew writes a file that must not be there yet.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return exitErrorf(ExitFailed, "%s is there already; it was not touched", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
