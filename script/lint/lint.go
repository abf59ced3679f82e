package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belayhq/belay/script"
)

// Level says how bad a finding is.
type Level string

// The levels, see the package.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// Finding is one thing that was found.
type Finding struct {
	Level  Level  `json:"level"`
	Rule   string `json:"rule"`             // a short name that stays
	File   string `json:"file"`             // in the project's folder
	Line   int    `json:"line,omitempty"`   // from 1; 0: not known
	Column int    `json:"column,omitempty"` // from 1; 0: not known
	Text   string `json:"text"`
}

// maxFindings bounds what is said about one project.
const maxFindings = 200

// Report is what is to be said about one project.
type Report struct {
	ID       string    `json:"id,omitempty"` // the tool's, where the manifest can be read
	Source   string    `json:"source,omitempty"`
	Findings []Finding `json:"findings"` // by place
}

// Project checks the project in a folder. editor says whether tools that need the
// editor can be loaded.
func Project(dir string, editor bool) Report {
	r := Report{Findings: []Finding{}}
	manifest := r.manifest(dir)
	tool, err := script.LoadFor(dir, editor)
	if err != nil {
		r.refused(dir, err, manifest)
	} else {
		r.Source = tool.Source
	}
	if source, code, err := script.Bundle(dir); err == nil {
		r.Source = source
		r.add(inspect(source, code)...)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if len(r.Findings) > maxFindings {
		r.Findings = append(r.Findings[:maxFindings:maxFindings], Finding{Note, "many", r.Source, 0, 0, "there is more; only the first findings are shown"})
	}
	return r
}

func (r *Report) add(list ...Finding) { r.Findings = append(r.Findings, list...) }

// manifest reads the manifest for what is allowed and hardly meant; what is not
// allowed, loading says. It returns the text, nil if there is none.
func (r *Report) manifest(dir string) []byte {
	text, err := script.ReadManifest(dir)
	if err != nil {
		return nil
	}
	m, err := script.ParseManifest(text)
	if err != nil {
		return text
	}
	r.ID = m.ID
	note := func(level Level, rule, key, format string, args ...any) {
		r.add(Finding{level, rule, script.ManifestFile, lineOf(text, key), 0, fmt.Sprintf(format, args...)})
	}
	if m.AutoApprove && !m.RequireApproval {
		note(Note, "auto-approve", "autoApprove", "autoApprove has no effect without requireApproval: nobody is asked")
	}
	if m.SupportsUIRender {
		note(Note, "no-screen", "supportsUIRender", "supportsUIRender has no effect: Belay has no screen")
	}
	for _, p := range m.Parameters {
		if strings.TrimSpace(p.Description) == "" {
			note(Warning, "no-description", strconv.Quote(p.Name), "parameter %q has no description: the model has only that to go by", p.Name)
		}
	}
	return text
}

// lineOf is the first line of a JSON text that has a word in it; 0 if none has.
func lineOf(text []byte, word string) int {
	for i, line := range strings.Split(string(text), "\n") {
		if strings.Contains(line, word) {
			return i + 1
		}
	}
	return 0
}

// Places in texts of errors: "line 3: …" in the manifest's, " at file:3:4(56)" of
// what the top level threw.
var (
	manifestLine = regexp.MustCompile(`line (\d+): `)
	manifestItem = regexp.MustCompile(`parameters\[(\d+)\]`)
	thrownAt     = regexp.MustCompile(`\s+at (?:\S+ \()?([^\s()]+):(\d+):(\d+)\(\d+\)\)?\s*$`)
)

// refused is why the project does not load.
func (r *Report) refused(dir string, err error, manifest []byte) {
	text := strings.TrimPrefix(err.Error(), "load "+dir+": ")
	if abs, absErr := filepath.Abs(dir); absErr == nil {
		text = strings.TrimPrefix(text, "load "+abs+": ")
	}
	mistakes := script.Mistakes(nil)
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes {
			r.add(Finding{Error, "compile", m.File, m.Line, m.Column, m.Text})
		}
	case errors.Is(err, script.ErrManifest):
		f := Finding{Error, "manifest", script.ManifestFile, 0, 0, strings.TrimPrefix(text, script.ErrManifest.Error()+": ")}
		if m := manifestLine.FindStringSubmatch(f.Text); m != nil {
			f.Line, _ = strconv.Atoi(m[1])
			f.Text = strings.Replace(f.Text, m[0], "", 1)
		} else if m := manifestItem.FindStringSubmatch(f.Text); m != nil {
			n, _ := strconv.Atoi(m[1])
			f.Line = itemLine(manifest, n)
		} else if word, _, _ := strings.Cut(f.Text, " "); word != "" {
			f.Line = lineOf(manifest, strconv.Quote(word))
		}
		r.add(f)
	case errors.Is(err, script.ErrUnsupported):
		r.add(Finding{Error, "unsupported", script.ManifestFile, 0, 0, text})
	default:
		f := Finding{Error, "registration", "", 0, 0, text}
		if errors.Is(err, script.ErrSource) {
			f.Rule = "compile"
		}
		if m := thrownAt.FindStringSubmatch(text); m != nil {
			f.File = m[1]
			f.Line, _ = strconv.Atoi(m[2])
			f.Column, _ = strconv.Atoi(m[3])
			f.Column++ // source maps count from 0
			f.Text = strings.TrimSuffix(text, m[0])
		}
		r.add(f)
	}
}

// itemLine is the line on which an entry of parameters begins; 0 if that cannot be
// said.
func itemLine(manifest []byte, n int) int {
	d := json.NewDecoder(strings.NewReader(string(manifest)))
	depth, inside, at := 0, false, -1
	for {
		begin := d.InputOffset()
		t, err := d.Token()
		if err != nil {
			return 0
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if inside && depth == 2 && t == json.Delim('{') {
				if at++; at == n {
					rest := manifest[begin:]
					skip := bytes.IndexByte(rest, '{')
					return 1 + strings.Count(string(manifest[:int(begin)+max(skip, 0)]), "\n")
				}
			}
			depth++
		case json.Delim('}'), json.Delim(']'):
			if depth--; depth == 1 {
				inside = false
			}
		case "parameters":
			inside = inside || depth == 1
		}
	}
}
