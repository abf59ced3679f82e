package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/script/lint"
	"github.com/belayhq/belay/script/types"
)

// typescript is the compiler that npx gets.
const typescript = "typescript@5.9.3"

// typesLimit bounds one run of the compiler, getting it included.
const typesLimit = 2 * time.Minute

// typeChecker runs a TypeScript compiler over projects.
type typeChecker struct {
	mode string // auto, local, off
	npx  error  // why npx is not tried again
}

func newTypeChecker(mode string) *typeChecker { return &typeChecker{mode: mode} }

// check checks the types of one project, and says in it how.
func (t *typeChecker) check(ctx context.Context, p *checked) {
	command, what := t.compiler(p.Dir)
	if command == nil {
		p.Types = what
		return
	}
	found, err := typeCheck(ctx, command, p)
	switch {
	case err == nil:
		p.Types = "checked by " + what
		p.Findings = append(p.Findings, found...)
	case ctx.Err() != nil:
	default:
		if command[0] != "" && strings.HasPrefix(what, "npx") {
			t.npx = err
		}
		p.Types = fmt.Sprintf("not checked: %s: %v", what, err)
	}
}

// compiler is the command line of the nearest compiler, and what it is; nil if there
// is none.
func (t *typeChecker) compiler(dir string) (command []string, what string) {
	if t.mode == "off" {
		return nil, "not checked (--types off)"
	}
	for at := dir; ; at = filepath.Dir(at) {
		if path, err := exec.LookPath(filepath.Join(at, "node_modules", ".bin", "tsc")); err == nil {
			return []string{path}, "the project's tsc"
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if path, err := exec.LookPath("tsc"); err == nil {
		return []string{path}, "tsc on PATH"
	}
	switch path, err := exec.LookPath("npx"); {
	case t.mode == "local":
		return nil, "not checked: no tsc in the project or on PATH"
	case err != nil:
		return nil, "not checked: no tsc in the project or on PATH, and no npx to get one"
	case t.npx != nil:
		return nil, fmt.Sprintf("not checked: npx %s: %v", typescript, t.npx)
	default:
		return []string{path, "--yes", "--package", typescript, "--", "tsc"}, "npx " + typescript
	}
}

var errTypesLimit = fmt.Errorf("it took more than %s", typesLimit)

// typeCheck runs the compiler over a project's script and what it imports, with
// Belay's own declarations, whatever the project says of itself.
func typeCheck(ctx context.Context, command []string, p *checked) ([]lint.Finding, error) {
	dir, err := os.MkdirTemp("", "belay-types")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := writeTypesProject(dir, p); err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeoutCause(ctx, typesLimit, errTypesLimit)
	defer end()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], "--pretty", "false", "--project", dir)...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second // npx looks for its settings where it stands
	cmd.Env = proc.Environment()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	found := readTSC(stdout.String(), dir, p.Dir)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && len(found) == 0: // it says findings by its exit code, too
		last := strings.TrimSpace(stderr.String())
		if last == "" {
			last = strings.TrimSpace(stdout.String())
		}
		if last == "" {
			last = err.Error()
		}
		return nil, errors.New(fit(oneLine(last), 200))
	}
	return found, nil
}

// writeTypesProject writes a project for the compiler: the script, the declarations,
// and the author's own settings where there are some.
func writeTypesProject(dir string, p *checked) error {
	declarations := filepath.Join(dir, "scripting.d.ts")
	if err := os.WriteFile(declarations, []byte(types.Declarations), 0o600); err != nil {
		return err
	}
	options := map[string]any{
		"target": "ES2022", "lib": []string{"ES2022"}, "module": "ESNext", "moduleResolution": "bundler", "jsx": "preserve",
		"noEmit": true, "skipLibCheck": true, "types": []string{}, "allowJs": true, "typeRoots": []string{}, "composite": false,
		"incremental": false, "paths": map[string][]string{},
	}
	config := map[string]any{"files": []string{filepath.Join(p.Dir, p.Source), declarations}, "include": []string{}, "compilerOptions": options}
	own := filepath.Join(p.Dir, types.ConfigFile)
	if _, err := os.Stat(own); err == nil {
		config["extends"] = own
	} else {
		options["strict"] = true
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, types.ConfigFile), text, 0o600)
}

// tscLine is "file(line,column): error TS1234: text", or without a place.
var tscLine = regexp.MustCompile(`^(?:(.+)\((\d+),(\d+)\): )?(error|warning) (TS\d+): (.*)$`)

// readTSC reads what the compiler has printed, in one of its projects about another
// folder. Lines that begin with a blank go on explaining.
func readTSC(out, in, dir string) []lint.Finding {
	var found []lint.Finding
	for line := range strings.Lines(out) {
		m := tscLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		f := lint.Finding{Level: lint.Error, Rule: m[5], Text: m[6]}
		if m[4] == "warning" {
			f.Level = lint.Warning
		}
		if m[1] != "" {
			f.File = m[1]
			if !filepath.IsAbs(f.File) {
				f.File = filepath.Join(in, f.File)
			}
			f.File = relativeTo(dir, f.File)
			f.Line, _ = strconv.Atoi(m[2])
			f.Column, _ = strconv.Atoi(m[3])
		}
		found = append(found, f)
	}
	return found
}

// relativeTo is a file's name in a folder, links in either name followed; a file
// elsewhere keeps its own.
func relativeTo(dir, file string) string {
	followed := func(path string) string {
		if p, err := filepath.EvalSymlinks(path); err == nil {
			return p
		}
		return path
	}
	rel, err := filepath.Rel(followed(dir), followed(file))
	if err != nil || !filepath.IsLocal(rel) {
		return file
	}
	return filepath.ToSlash(rel)
}
