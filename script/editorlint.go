package script

import (
	"errors"
	"fmt"
	"path"
	"unicode/utf16"

	"github.com/evanw/esbuild/pkg/api"
)

// Bounds of what the compiler looks at for one list of mistakes.
const (
	maxLintFiles = 2000
	maxLintBytes = 32 << 20
	maxLintSaid  = 100 // mistakes of one file
)

// lintError is one mistake as ScriptEditorProvider says it (AT-81). Lines count from
// 1, everything else from 0; from and to are places in the whole file, in characters
// as scripts count them.
type lintError struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	From    int    `json:"from"`
	To      int    `json:"to"`
	Message string `json:"message"`
}

// lintLoaders are the files that the compiler can read.
var lintLoaders = map[string]api.Loader{
	".ts": api.LoaderTS, ".tsx": api.LoaderTSX, ".mts": api.LoaderTS, ".js": api.LoaderJSX, ".jsx": api.LoaderJSX,
	".mjs": api.LoaderJSX, ".json": api.LoaderJSON,
}

var errLint = errors.New("the editor's folder has too much to check: grant a smaller one")

// lint is what the compiler says of each file by itself; files without mistakes are
// left out.
func (e *Editor) lint(stopped func() error) (map[string][]lintError, error) {
	files, err := e.list(false, stopped)
	if err != nil {
		return nil, err
	}
	all, looked, bytes := make(map[string][]lintError), 0, 0
	for _, name := range files {
		loader, ok := lintLoaders[path.Ext(name)]
		if !ok {
			continue
		}
		if err := stopped(); err != nil {
			return nil, err
		}
		text, err := e.read(name)
		if err != nil {
			continue // no text, too large, or gone in the meantime
		}
		if looked, bytes = looked+1, bytes+len(text); looked > maxLintFiles || bytes > maxLintBytes {
			return nil, errLint
		}
		if found := lintText(name, text, loader); len(found) > 0 {
			all[name] = found
		}
	}
	return all, nil
}

func lintText(name, text string, loader api.Loader) []lintError {
	if line, deep := tooDeep([]byte(text)); deep {
		return []lintError{{Line: line, Message: fmt.Sprintf("it is nested more than %d deep", maxNesting)}}
	}
	options := api.TransformOptions{
		Sourcefile: name, Loader: loader, Target: api.ES2017, LogLevel: api.LogLevelSilent, LogLimit: maxLintSaid, TsconfigRaw: "{}",
	}
	if loader != api.LoaderJSON {
		options.Format = api.FormatIIFE // so that an await at the top level is one too (AT-84)
	}
	result := api.Transform(text, options)
	found := make([]lintError, 0, len(result.Errors)+len(result.Warnings))
	for _, m := range append(result.Errors, result.Warnings...) {
		mistake := lintError{Line: 1, Message: m.Text}
		if l := m.Location; l != nil {
			start := lineStart(text, l.Line) + l.Column
			mistake = lintError{
				Line: l.Line, Column: characters(l.LineText[:min(l.Column, len(l.LineText))]), From: characters(text[:min(start, len(text))]),
				Message: m.Text,
			}
			mistake.To = mistake.From + characters(text[min(start, len(text)):min(start+l.Length, len(text))])
		}
		found = append(found, mistake)
		if len(found) == maxLintSaid {
			break
		}
	}
	return found
}

// lineStart is where a line begins, in bytes.
func lineStart(text string, line int) int {
	at := 0
	for _, l := range splitLines(text)[:min(line-1, len(splitLines(text)))] {
		at += len(l)
	}
	return at
}

// characters counts as JavaScript does.
func characters(s string) int {
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}
