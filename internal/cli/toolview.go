package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/script"
)

// toolView is what the author of a tool sees of a call: reports and the console on
// standard error, the result on standard output. Safe for concurrent use.
type toolView struct {
	env      *Env
	out, err style

	mu      sync.Mutex
	live    bool // the last line is a report that another may replace
	reports []toolReport
}

func newToolView(env *Env) *toolView {
	return &toolView{env: env, out: styleOf(env.Stdout, env.Getenv), err: styleOf(env.Stderr, env.Getenv)}
}

// begin forgets the reports of the call before.
func (v *toolView) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reports = []toolReport{}
}

// ended returns the reports of the call, each as it stood last.
func (v *toolView) ended() []toolReport {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breakLocked()
	return v.reports
}

// report shows progress; one with the id of an earlier one takes its place.
func (v *toolView) report(message, id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	again := v.noteLocked(toolReport{id, message})
	text := "report: " + oneLine(message)
	if !v.err.terminal {
		v.lineLockedf("%s", fit(text, 1000)) // the rest is in --json
		return
	}
	if !again {
		v.breakLocked()
	}
	fmt.Fprint(v.env.Stderr, "\r"+clearLine+v.err.paint(faint, fit(text, v.err.width-1)))
	v.live = true
}

// noteLocked keeps a report, and says whether it took the place of the last one.
func (v *toolView) noteLocked(r toolReport) (again bool) {
	for i := range v.reports {
		if v.reports[i].ID == r.ID && r.ID != "" {
			v.reports[i] = r
			return i == len(v.reports)-1
		}
	}
	if len(v.reports) < script.MaxReports { // a worker keeps to that, too
		v.reports = append(v.reports, r)
	}
	return false
}

// breakLocked ends a line that a report has left open.
func (v *toolView) breakLocked() {
	if v.live {
		v.live = false
		fmt.Fprintln(v.env.Stderr)
	}
}

// linef is one line of Belay's own.
func (v *toolView) linef(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lineLockedf(format, args...)
}

func (v *toolView) lineLockedf(format string, args ...any) {
	v.breakLocked()
	v.env.Warnf(format, args...)
}

// text prints what a tool has made, as it is; on a terminal without what would move
// the cursor.
func (v *toolView) text(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breakLocked()
	if v.out.terminal {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = oneLine(lines[i])
		}
		s = strings.Join(lines, "\n")
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	_, _ = io.WriteString(v.env.Stdout, s)
}

// result prints what a call ended with.
func (v *toolView) result(o *toolOutcome) {
	for i := range o.Content {
		p := &o.Content[i]
		switch {
		case p.Type == "image":
			v.linef("an image%s: %s, %d bytes (--json prints it)", whom(p), p.MIMEType, len(p.Data))
		case p.Type != "text":
			v.linef("a part of type %q%s", p.Type, whom(p))
		case p.forUser():
			for line := range strings.SplitSeq(strings.TrimRight(p.Text, "\n"), "\n") {
				v.linef("for the user: %s", line)
			}
		case p.Text != "" || len(o.Content) == 1:
			v.text(p.Text)
		}
	}
	switch {
	case o.Outcome == belay.Declined:
		v.linef("it was not approved")
	case !o.Success:
		v.linef("the tool failed")
	}
}

// whom says for whom a part is, where that is not the assistant.
func whom(p *toolPart) string {
	if p.forUser() {
		return " for the user"
	}
	return ""
}

func (v *toolView) receipt(r *belay.Receipt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breakLocked()
	printReceipt(v.env.Stderr, v.err, r, true)
}

// console shows what a worker writes to its standard error, until it ends: the
// lines of scripts' consoles, and what the worker itself has to say.
func (v *toolView) console(from io.Reader) {
	lines := bufio.NewReaderSize(from, 64<<10)
	dying := false // what follows is the trace of a process that has failed: pages of it
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimSpace(line); line != "" && (!dying || strings.HasPrefix(line, "{")) {
			v.logged(line)
			dying = lastWords.MatchString(line)
		}
		if err != nil {
			return
		}
	}
}

// lastWords is how the trace of a Go program that fails begins.
var lastWords = regexp.MustCompile(`^(fatal error: |panic: |runtime(/cgo)?: |SIG[A-Z]+: |goroutine [0-9]+ )`)

// logged is one line of a worker's log, in JSON, or of whatever else it wrote.
func (v *toolView) logged(line string) {
	var entry struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
		Tool  string `json:"tool"`
		Error string `json:"error"`
	}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &entry) != nil || entry.Msg == "" {
		v.linef("worker: %s", strings.TrimPrefix(line, "belay: "))
		return
	}
	level := ""
	if entry.Level != "INFO" {
		level = "." + strings.ToLower(entry.Level)
	}
	switch {
	case entry.Tool != "":
		for text := range strings.SplitSeq(entry.Msg, "\n") {
			v.linef("console%s: %s", level, text)
		}
	case entry.Error != "":
		v.linef("%s: %s", entry.Msg, entry.Error)
	default:
		v.linef("%s", entry.Msg)
	}
}

// person answers questions on the terminal.
type person struct {
	view  *toolView
	lines lineReader
	turn  sync.Mutex // one question at a time
}

// newPerson returns nil where nobody looks.
func newPerson(env *Env, v *toolView) *person {
	in, ok := env.Stdin.(*os.File)
	if !ok || !v.err.terminal {
		return nil
	}
	if _, _, ok := terminalSize(in); !ok {
		return nil
	}
	return &person{view: v, lines: lineReader{from: in}}
}

// asked asks one question; ok is false for one that was closed, or withdrawn.
func (p *person) asked(ctx context.Context, q elicitation) (answer string, ok bool) {
	p.turn.Lock()
	defer p.turn.Unlock()
	choices := q.choices()
	p.show(q.Message, choices)
	for {
		line, err := p.lines.next(ctx)
		line = strings.TrimSpace(line)
		switch {
		case ctx.Err() != nil:
			p.view.linef("the question was withdrawn")
			return "", false
		case err != nil, line == "":
			p.view.linef("the question was closed")
			return "", false
		}
		if answer, ok := pick(choices, line); ok {
			return answer, true
		}
		p.view.linef("%q is none of the answers: a number from 1 to %d, or nothing to close the question", fit(line, 40), len(choices))
		p.prompt(choices)
	}
}

// pick is the choice that was typed: its number, or its label.
func pick(choices []string, line string) (string, bool) {
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(choices) {
		return choices[n-1], true
	}
	for _, c := range choices {
		if strings.EqualFold(c, line) {
			return c, true
		}
	}
	return "", false
}

func (p *person) show(message string, choices []string) {
	v := p.view
	v.mu.Lock()
	v.breakLocked()
	for i, line := range strings.Split(strings.TrimSpace(message), "\n") {
		t := plain
		if i == 0 {
			t = bold
		}
		fmt.Fprintln(v.env.Stderr, v.err.paint(t, oneLine(line)))
	}
	v.mu.Unlock()
	p.prompt(choices)
}

func (p *person) prompt(choices []string) {
	v := p.view
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	for i, c := range choices {
		fmt.Fprintf(&b, "[%d] %s  ", i+1, oneLine(c))
	}
	fmt.Fprint(v.env.Stderr, b.String()+"[Enter] close: ")
}
