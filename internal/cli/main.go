package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Env is what a command may touch of the world.
type Env struct {
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Warnf prints one line on standard error. Safe for one goroutine at a time.
func (e *Env) Warnf(format string, args ...any) {
	fmt.Fprintln(e.Stderr, "belay: "+oneLine(fmt.Sprintf(format, args...)))
}

// Main runs the command line args (without the program's name) and returns the
// exit code. Nil streams and a nil getenv are not allowed.
func Main(args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	env := &Env{Getenv: getenv, Stdin: stdin, Stdout: stdout, Stderr: stderr}
	defer func() {
		// --help is printed by the parser, which then wants the program to
		// end; unwinding to here is that end.
		if early, ok := recover().(earlyExit); ok {
			code = int(early)
		}
	}()
	err := run(env, args)
	if text := exitText(err); text != "" {
		env.Warnf("%s", text)
	}
	return exitCode(err)
}

type earlyExit int

func run(env *Env, args []string) error {
	parser, err := newParser(env)
	if err != nil {
		return err // the grammar itself is wrong; the tests find that
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return usageError(args, err)
	}
	return ctx.Run(env)
}

func newParser(env *Env) (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("belay"),
		kong.Description("One Stop for AI agents' tools, and it really stops.\n\nExit codes: "+
			"0 done, 1 failed, 2 usage, 3 not confirmed, 4 nothing matched, 5 agent killed, 6 processes left alive, 130 stopped."),
		kong.Writers(env.Stdout, env.Stderr),
		kong.Exit(func(code int) { panic(earlyExit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "run", Title: "Run things under Belay:"},
			{Key: "stop", Title: "See and stop what runs:"},
			{Key: "more", Title: "More:"},
			{Key: "server", Title: "Which server:"},
		}),
	)
}

// usageError makes the parser's complaint one line that says what to do next.
func usageError(args []string, err error) error {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return err
	}
	help := "belay --help"
	if parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			help = node.FullPath() + " --help"
		}
	}
	text := err.Error()
	if len(args) == 0 {
		text = "a command is missing"
	}
	return usagef("%s (see %q)", strings.TrimSuffix(text, "."), help)
}
