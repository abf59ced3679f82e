package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// scriptedTools are the scripts that are measured, by their ids. What they do is in
// their execute function; "here" tells the bench that a call has got there.
var scriptedTools = map[string]string{
	"echo": `return {success: true, message: params.text}`,
	"wait": `AssistantTool.onCancel = () => "partial results of the wait"
		await here()
		while (!AssistantTool.isCancelled) await new Promise(r => setTimeout(r, 50))`,
	"busy":  `await here(); for (;;) { try { for (;;) {} } finally {} }`,
	"regex": `await here(); return {success: true, message: String(/^(a+)+\1$/.test("a".repeat(40) + "!"))}`,
	"sleep": `await here(); await new Promise(() => { setInterval(() => {}, 1e6) })`,
}

// The times of the ladder here: what counts is what is spent beyond them.
const (
	scriptGrace = 200 * time.Millisecond
	scriptKill  = 300 * time.Millisecond
)

// scripts measures scripted tools through belay serve: what a call costs, how fast a
// Stop hands back what there is and breaks what does not yield, and how many scripts
// can wait in one worker.
func (b *bench) scripts() error {
	if b.belay == "" {
		return errors.New("needs the belay binary")
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"scripts: a call on a warm worker", func() error { return b.scriptCalls("warm", 4, 400, 5) }},
		{"scripts: a call on a cold worker", func() error { return b.scriptCalls("cold", 0, 40, 60) }},
		{"scripts: onCancel's text at the caller", b.scriptPartials},
		{"scripts: a busy loop", b.scriptBusy},
		{"scripts: a builtin that no interrupt reaches", b.scriptDeaf},
		{"scripts: 1,000 that wait", b.scriptCrowd},
	} {
		if err := part.run(); err != nil {
			b.report.failed(part.name, err)
		}
	}
	return nil
}

// stage is a belay serve with scripted tools.
type stage struct {
	household

	service *service
	caller  *web
	admin   *rest
	board   *httptest.Server
	here    chan struct{} // one for each call that has got there
}

// onStage starts belay serve before the scripts, with these settings of the server.
func (b *bench) onStage(server map[string]any) (*stage, error) {
	s := &stage{here: make(chan struct{}, 10_000)}
	s.board = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.here <- struct{}{}
		w.WriteHeader(http.StatusNoContent)
	}))
	dir, err := os.MkdirTemp(b.dir, "scripts-")
	if err != nil {
		return nil, err
	}
	for id, body := range scriptedTools {
		if err := writeScript(filepath.Join(dir, id), id, s.board.URL, body); err != nil {
			return nil, err
		}
	}
	people, settings := newHousehold()
	s.household = people
	all := map[string]any{
		"scripts": map[string]any{"dirs": []string{dir}, "allow_hosts": []string{"127.0.0.1"}},
		"grace":   scriptGrace.String(), "kill_after": scriptKill.String(),
	}
	maps.Copy(all, server)
	settings["defaults"] = map[string]any{} // scripts are always forced
	settings["servers"] = map[string]any{"peer": all}
	settings["orchestrate"] = unlimited()
	if s.service, err = b.belayServe(nil, "", settings); err != nil {
		s.board.Close()
		return nil, err
	}
	if s.caller, err = openWeb("user", s.service.url, eraLegacy, people.user, s.service); err == nil {
		s.admin, err = openREST(s.service.url, people.boss)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func writeScript(dir, id, board, body string) error {
	manifest := fmt.Sprintf(`{"id":%q,"displayName":%q,"description":"Is measured.","parameters":[{"name":"text","type":"string"}]}`, id, id)
	source := "const here = () => fetch(\"" + board + "\")\nAssistantTool.registerExecuteTool<any>(async (params: any) => {\n" + body + "\n})\n"
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "assistant_tool.json"), []byte(manifest), 0o600),
		os.WriteFile(filepath.Join(dir, "assistant_tool.tsx"), []byte(source), 0o600))
}

func (s *stage) close() {
	if s.caller != nil {
		_ = s.caller.close()
	}
	if s.admin != nil {
		s.admin.close()
	}
	s.service.stop()
	s.board.Close()
}

// arrived waits until so many calls more have got into their scripts.
func (s *stage) arrived(calls int) error {
	guard := time.NewTimer(2 * limit)
	defer guard.Stop()
	for i := range calls {
		select {
		case <-s.here:
		case <-guard.C:
			return fmt.Errorf("%d of %d calls have got there", i, calls)
		}
	}
	return nil
}

// scriptCalls measures one call after the other.
func (b *bench) scriptCalls(what string, spares, calls int, bar float64) error {
	if b.quick {
		calls /= 4
	}
	s, err := b.onStage(map[string]any{"spares": spares})
	if err != nil {
		return err
	}
	defer s.close()
	one := s.warmCall
	if spares == 0 {
		one = s.coldCall
	} else if err := s.warm(); err != nil {
		return err
	}
	var p50, p99 []float64
	for range b.rounds {
		var times []float64
		for range calls {
			took, err := one()
			if err != nil {
				return err
			}
			times = append(times, milli(took))
		}
		p50, p99 = append(p50, median(times)), append(p99, quantile(times, 0.99))
	}
	r := b.report.compare("scripts: a call on a "+what+" worker, p50", "ms", map[string][]float64{"belay": p50})
	r.bar = fmt.Sprintf("< %.0f", bar)
	r.judge(r.value("belay") < bar)
	b.report.compare("scripts: a call on a "+what+" worker, p99", "ms", map[string][]float64{"belay": p99})
	return nil
}

var scriptArgs = `{"text":"` + strings.Repeat("x", 70) + `"}`

// warm makes calls until the first workers are there and have compiled the script.
func (s *stage) warm() error {
	for range 50 {
		if _, err := s.warmCall(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) warmCall() (time.Duration, error) { return s.caller.call("echo", scriptArgs) }

// coldCall is the first call of a session, for which a worker is started: nobody else's
// may serve it.
func (s *stage) coldCall() (time.Duration, error) {
	w := &web{name: "cold", host: s.caller.host, path: s.caller.path, era: eraLegacy, token: s.caller.token, mid: s.service}
	defer w.close()
	if err := w.initialize(); err != nil {
		return 0, err
	}
	took, err := w.call("echo", scriptArgs)
	if err != nil {
		return 0, err
	}
	return took, w.leave()
}

// leave ends a session, and its processes with it.
func (w *web) leave() error {
	l, err := w.line(0)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(l.conn, "DELETE %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nMcp-Protocol-Version: %s\r\n\r\n",
		w.path, w.host, w.token, w.session, w.era); err != nil {
		return err
	}
	_, err = l.read()
	return err
}

// held starts a call and returns its run when it has got into its script.
func (s *stage) held(tool string) (run string, err error) {
	if _, err := s.caller.begin(0, tool, `{}`); err != nil {
		return "", err
	}
	if err := s.arrived(1); err != nil {
		return "", err
	}
	runs, err := s.admin.inFlight()
	if err == nil && len(runs) != 1 {
		err = fmt.Errorf("%d calls are in flight, not one", len(runs))
	}
	if err != nil {
		return "", err
	}
	return runs[0], nil
}

// pressAfter is when a person presses Stop: not while the worker for the next call is
// still being started.
const pressAfter = 150 * time.Millisecond

// scriptPartials measures from an operator's Stop on the wire to onCancel's text read
// by the caller.
func (b *bench) scriptPartials() error {
	s, err := b.onStage(nil)
	if err != nil {
		return err
	}
	defer s.close()
	n := 150
	if b.quick {
		n = 25
	}
	var p50, p99 []float64
	for range b.rounds {
		var times []float64
		for range n {
			run, err := s.held("wait")
			if err != nil {
				return err
			}
			time.Sleep(pressAfter)
			ordered := make(chan error, 1)
			sent := time.Now()
			go func() {
				_, err := s.admin.do("POST", "/v1/runs/"+run+"/cancel", `{"reason":"bench"}`)
				ordered <- err
			}()
			_, err = s.caller.lines[0].read()
			times = append(times, milli(time.Since(sent)))
			if err = errors.Join(err, <-ordered); err != nil {
				return err
			}
			if !bytes.Contains(s.caller.lines[0].body, []byte("partial results of the wait")) {
				return fmt.Errorf("no partial result: %.300s", s.caller.lines[0].body)
			}
		}
		p50, p99 = append(p50, median(times)), append(p99, quantile(times, 0.99))
	}
	b.report.compare("scripts: operator's Stop -> onCancel's text at the caller, p50", "ms", map[string][]float64{"belay": p50})
	r := b.report.compare("scripts: operator's Stop -> onCancel's text at the caller, p99", "ms", map[string][]float64{"belay": p99})
	r.bar = "< 5"
	r.judge(r.value("belay") < 5)
	return nil
}

// stopped stops a call that has got into its script, waits for the receipt and
// returns it; the caller must have its answer.
func (s *stage) stopped(tool string) (belay.Receipt, error) {
	run, err := s.held(tool)
	if err != nil {
		return belay.Receipt{}, err
	}
	if status, err := s.admin.do("POST", "/v1/runs/"+run+"/cancel", `{"reason":"bench","wait":10}`); err != nil || status != 200 {
		return belay.Receipt{}, fmt.Errorf("cancel: status %d, %w: %.300s", status, err, s.admin.body)
	}
	if _, err := s.caller.lines[0].read(); err != nil {
		return belay.Receipt{}, err
	}
	var r belay.Receipt
	if err := s.admin.get("/v1/receipts/"+run, &r); err != nil {
		return r, err
	}
	if r.Verdict != belay.Confirmed {
		return r, fmt.Errorf("the verdict is %s: %+v", r.Verdict, r.Steps)
	}
	return r, nil
}

// scriptLadder measures how long after its due time a script that does not yield was
// seen to have stopped, by the receipt.
func (b *bench) scriptLadder(what, tool string, due time.Duration, kind belay.EvidenceKind, bar float64) error {
	s, err := b.onStage(nil)
	if err != nil {
		return err
	}
	defer s.close()
	n := 10
	if b.quick {
		n = 3
	}
	var p50, worst []float64
	for range b.rounds {
		var times []float64
		for range n {
			r, err := s.stopped(tool)
			if err != nil {
				return err
			}
			seen, ok := time.Time{}, false
			for _, step := range r.Steps {
				if e := step.Evidence; e != nil && e.Kind == kind && !ok {
					seen, ok = step.At, true
				}
			}
			if !ok {
				return fmt.Errorf("no evidence %s: %+v", kind, r.Steps)
			}
			times = append(times, milli(seen.Sub(r.Cancellation.At)-due))
		}
		p50, worst = append(p50, median(times)), append(worst, quantile(times, 1))
	}
	b.report.compare(what+", p50", "ms", map[string][]float64{"belay": p50})
	r := b.report.compare(what+", worst of a round", "ms", map[string][]float64{"belay": worst})
	r.bar = fmt.Sprintf("< %.0f", bar)
	r.judge(r.value("belay") < bar)
	return nil
}

func (b *bench) scriptBusy() error {
	return b.scriptLadder("scripts: busy loop interrupted, beyond the grace", "busy", scriptGrace, belay.SeenInterrupted, 60)
}

func (b *bench) scriptDeaf() error {
	return b.scriptLadder("scripts: builtin seen dead, beyond grace and kill_after", "regex", scriptGrace+scriptKill, belay.SeenProcessGone, 50)
}

// scriptCrowd measures the memory of many scripts that wait in one worker.
func (b *bench) scriptCrowd() error {
	const calls = 1000
	s, err := b.onStage(map[string]any{"isolation": "shared", "at_once": 0, "spares": 0})
	if err != nil {
		return err
	}
	defer s.close()
	for n := range calls {
		if _, err := s.caller.begin(n+1, "sleep", `{}`); err != nil {
			return err
		}
	}
	if err := s.arrived(calls); err != nil {
		return err
	}
	pids, err := middle(s.service.pid())
	if err != nil {
		return err
	}
	bytes, err := pss(pids)
	if err != nil {
		return err
	}
	r := b.report.compare("scripts: memory (PSS) of Belay and its worker, 1,000 scripts waiting", "MB", map[string][]float64{"belay": {bytes / 1e6}})
	r.bar, r.note = "< 1000", fmt.Sprintf("isolation: shared, %d processes", len(pids))
	r.judge(r.value("belay") < 1000)
	return nil
}
