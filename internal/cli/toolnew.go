package cli

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/types"
)

type toolNewCmd struct {
	Name     string `arg:"" help:"The tool's id, and the name of its folder: letters, digits, _ and -."`
	In       string `placeholder:"FOLDER" default:"." help:"Where the folder is made; default: here."`
	Approval bool   `help:"A tool that asks a person before it works."`
}

// Help implements kong.HelpProvider.
func (*toolNewCmd) Help() string {
	return `Makes a folder with a tool that runs as it is: it reads a list of texts, reports progress, and hands back what it has when
it is stopped. Types and a tsconfig.json lie beside it. Nothing that is there already is touched.

Examples:

    belay tool new count_words
    belay tool new tidy_up --approval --in ./tools`
}

// The scripts that a new project begins with.
var (
	//go:embed toolnew_plain.tsx
	scaffoldPlain string

	//go:embed toolnew_approval.tsx
	scaffoldApproval string
)

// newToolName is what callers and file systems alike take as a name.
var newToolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Run makes the project.
func (c *toolNewCmd) Run(env *Env) error {
	if !newToolName.MatchString(c.Name) || strings.HasPrefix(c.Name, "-") {
		return usagef("tool new: the name %.80q must be letters, digits, _ and -, 1 to 64 of them, the first no -", c.Name)
	}
	dir := filepath.Join(c.In, c.Name)
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist):
		return usagef("tool new: %s is there already", dir)
	case errors.Is(err, fs.ErrNotExist):
		return usagef("tool new: the folder %s does not exist", c.In)
	case err != nil:
		return exitErrorf(ExitFailed, "tool new: %w", err)
	}
	text := scaffoldPlain
	if c.Approval {
		text = scaffoldApproval
	}
	manifest, err := c.manifest()
	if err != nil {
		return exitErrorf(ExitFailed, "tool new: %w", err)
	}
	for _, file := range []struct{ name, text string }{{script.ManifestFile, manifest}, {"assistant_tool.tsx", text}} {
		if err := writeNew(filepath.Join(dir, file.name), file.text); err != nil {
			return exitErrorf(ExitFailed, "tool new: %w", err)
		}
	}
	if _, err := types.Write(dir); err != nil {
		return exitErrorf(ExitFailed, "tool new: %w", err)
	}
	shown := dir
	if c.In == "." || !filepath.IsAbs(dir) {
		shown = filepath.Join(".", dir)
	}
	fmt.Fprintln(env.Stdout, shown)
	env.Warnf("try: belay tool run %s --test", shown)
	return nil
}

// manifest is the assistant_tool.json of the new project, in the order in which
// people read it.
func (c *toolNewCmd) manifest() (string, error) {
	type parameter struct {
		Name        string `json:"name"`
		Type        string `json:"type"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
	}
	description := "Counts the words of several texts."
	if c.Approval {
		description = "Counts the words of several texts, after a person has agreed."
	}
	text, err := json.MarshalIndent(struct {
		DisplayName      string      `json:"displayName"`
		ID               string      `json:"id"`
		Description      string      `json:"description"`
		Icon             string      `json:"icon"`
		Color            string      `json:"color"`
		Parameters       []parameter `json:"parameters"`
		RequireApproval  bool        `json:"requireApproval"`
		AutoApprove      bool        `json:"autoApprove"`
		ScriptEditorOnly bool        `json:"scriptEditorOnly"`
	}{
		DisplayName: displayName(c.Name), ID: c.Name, Description: description, Icon: "text.word.spacing", Color: "systemBlue",
		Parameters: []parameter{
			{"texts", "array", "The texts", true},
			{"pause", "number", "Milliseconds to wait after each text", false},
		},
		RequireApproval: c.Approval,
	}, "", "  ")
	return string(text) + "\n", err
}

// displayName makes words of an id: "count_words" is "Count words".
func displayName(id string) string {
	words := strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return ' '
		}
		return r
	}, id))
	if words == "" {
		return id
	}
	return strings.ToUpper(words[:1]) + words[1:]
}
