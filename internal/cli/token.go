package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/local"
)

type tokenCmd struct {
	Show tokenShowCmd `cmd:"" default:"withargs" help:"Print your own token (what \"belay token\" does)."`
	New  tokenNewCmd  `cmd:"" help:"Make a token for somebody else, or for a program."`
}

// Help implements kong.HelpProvider.
func (*tokenCmd) Help() string {
	return `Your own token opens /v1 and the Orchestrate endpoints of the belay serve that you run. It lies in a file only you can read,
and is made when it is first needed; belay ps and the others find it there. Whoever has it can stop everything of yours:
do not hand it out, make others with belay token new.

Examples:

    belay token                         print it, and make it if there is none
    belay token --path                  where it lies
    curl -H "Authorization: Bearer $(belay token)" http://127.0.0.1:7474/v1/runs
    belay token new ci --role user      one for somebody else`
}

type tokenShowCmd struct {
	Path bool `help:"Print the file's name instead, and make nothing."`
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Help implements kong.HelpProvider.
func (*tokenShowCmd) Help() string {
	return `The file is $` + auth.EnvTokenFile + ` if that is set, else local-token in $BELAY_STATE_DIR, or in Belay's folder of your
configuration. To replace the token, remove the file and restart belay serve.

Examples:

    belay token
    belay token --path`
}

// Run prints the token or its place.
func (c *tokenShowCmd) Run(env *Env) error {
	path := auth.LocalTokenPath(env.Getenv, local.Dir(env.Getenv))
	out := struct {
		Path  string `json:"path"`
		Token string `json:"token,omitempty"`
	}{Path: path}
	line := path
	if !c.Path {
		token, err := auth.LocalToken(path)
		if err != nil {
			return exitErrorf(ExitFailed, "token: %w", err)
		}
		out.Token, line = token, token
	}
	if c.JSON {
		return printObject(env.Stdout, out)
	}
	_, err := fmt.Fprintln(env.Stdout, line)
	return err
}

// printObject writes one value for programs, indented as the lists are.
func printObject(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
