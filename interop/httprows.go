package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// Letters of the ways in which a call is stopped, in pairs.
var httpEvents = map[rune]event{
	'a': {name: "abort", client: "abort"},
	't': {name: "time-out", client: "timeout"},
	'd': {name: "disconnect", client: "wait"},
	'D': {name: "disconnect, detach", client: "wait", needBelay: true},
	'r': {name: "connection lost, resumed", client: "wait"},
	'c': {name: "belay cancel", client: "wait", cancel: true, needBelay: true},
	'C': {name: "belay cancel, final word", client: "wait", cancel: true, needBelay: true},
}

// pair is a client, a server, and how its calls are stopped.
type pair struct{ client, server, events string }

// pairs is not the full product: every client meets several servers and every
// server several clients, and each way to stop occurs with each kind of both.
var pairs = []pair{
	{"ts1", "ref http", "atdrc"},
	{"ts1", "ref stdio", "atdDrc"},
	{"ts1", "ts1 http", "atdc"},
	{"ts1", "go http", "ac"},
	{"ts1", "py1 http", "a"},
	{"ts1", "ts2 stdio", "a"},
	{"ts1", "py1 stdio", "t"},
	{"ts2", "ref stdio", "atr"},
	{"ts2", "ts2 http", "atd"},
	{"ts2", "py2 http", "ac"},
	{"ts2 2026", "ts2 http", "atdc"},
	{"ts2 2026", "go http 2026", "ad"},
	{"ts2 2026", "go stdio", "ad"},
	{"ts2 2026", "ts2 stdio deaf", "adc"},
	{"ts2 2026", "ref http", "a"},
	{"ts2 2026", "py2 stdio", "a"},
	{"go", "ref http", "aC"},
	{"go", "go http", "atdc"},
	{"go", "ts1 http", "a"},
	{"go", "ts1 stdio", "dc"},
	{"go", "go stdio", "ar"},
	{"go 2026", "go http 2026", "atdc"},
	{"go 2026", "go http 2026 deaf", "ac"},
	{"go 2026", "ts2 http", "ad"},
	{"go 2026", "ts2 stdio deaf", "at"},
	{"py1", "py1 http", "atdrc"},
	{"py1", "ref stdio", "dc"},
	{"py1", "ref http", "d"},
	{"py1", "go http", "d"},
	{"py1", "py2 stdio", "d"},
	{"py2", "py2 http", "atdc"},
	{"py2", "ref http", "tc"},
	{"py2", "py1 stdio", "trc"},
	{"py2", "ts1 stdio", "a"},
	{"py2 2026", "py2 http", "ad"},
	{"py2 2026", "go http 2026", "t"},
}

// watchHTTP is how long a row over HTTP is watched after its Stop. A client that
// resumes a stream for ever does so once a second: it would begin more GETs in
// that time than judge allows. Where it matters most, after an abort, it is
// watched for longer.
const (
	watchHTTP  = 2500 * time.Millisecond
	watchAbort = 4500 * time.Millisecond
)

// httpRow is one session over HTTP.
type httpRow struct {
	row                   // peer is the client
	server  httpPeer      // what is behind
	era     string        // what the client says it speaks
	cancels bool          // disconnect: cancel, not the default, detach
	runsOn  bool          // the policy wants the work to go on
	resumed bool          // the work is to end by itself, and the client to get its result all the same
	resumes int           // how often this client asks for a stream that is over
	gets    int           // GETs that the client began after the Stop
	post    time.Duration // the stopped call's POST, from the Stop; negative: still open
	receipt string        // Belay's verdict; "none": nothing was stopped
}

func httpTable() table {
	return table{
		title: "Over HTTP",
		method: "Under Belay: `belay serve` with `enforce: strict` and `grace: " + grace.String() + "`. Clients speak Streamable HTTP; servers over HTTP\n" +
			"are on their own, servers on stdio are Belay's children and have no bare row. A client disconnects by\n" +
			"being killed; the next call is a new client's then. Clients of the older revisions disconnect with\n" +
			"`disconnect: cancel`, and once with the default, `detach`, by which the work is to go on. \"Connection lost\": the client\n" +
			"lives, its call's connection is cut, and it is to get its result by resuming.\n\n" +
			"Between the client and what it talks to lies a tap. \"POST\": when the stopped call's POST ended, from the\n" +
			"Stop on. \"GETs\": how many the client began in " + watchHTTP.String() + " after the Stop, after an abort in " + watchAbort.String() + ". \"receipt\":\n" +
			"Belay's last word. Nobody can end a remote server's work by force: its receipt is `signalled` when it was\n" +
			"told and `acknowledged` when it answered, never `confirmed`.",
		columns: []string{"client", "server", "speaks", "stopped by", "way", "work went on", "client was told", "POST", "GETs", "receipt", "next calls", "problem"},
		told:    6,
	}
}

func (r *httpRow) cells() []string {
	c := r.row.cells()
	post := fmt.Sprintf("%d ms", max(0, r.post.Milliseconds()))
	if r.post < 0 {
		post = "open"
	}
	return []string{r.peer, r.server.name, r.era, r.event, c[2], c[3], c[5], post, fmt.Sprint(r.gets), r.receipt, r.next, r.problem}
}

// judge decides whether a row under Belay fails the run.
func (r *httpRow) judge() {
	if !r.belay || r.problem != "" {
		return
	}
	stops := r.server.stdio || !r.server.deaf // by force, or by itself
	switch {
	case r.resumed:
		if r.receipt != "none" || !strings.HasPrefix(r.told, "result: ") {
			r.problem = "the client did not get its result"
		}
	case r.runsOn || r.noCancel:
		if r.runsOn && (!r.stillAt || r.receipt != "none") {
			r.problem = "the work was stopped"
		}
	case !r.server.stdio && r.receipt != "signalled" && r.receipt != "acknowledged":
		r.problem = "a remote server's receipt: " + r.receipt
	case r.server.stdio && r.receipt != "confirmed" && r.receipt != "acknowledged":
		r.problem = "receipt of a process that Belay started: " + r.receipt
	case stops && r.stillAt:
		r.problem = "the work went on"
	case stops && r.late():
		r.problem = fmt.Sprintf("the work went on for %v", r.wentOn.Round(time.Millisecond))
	case r.server.stdio && r.server.deaf && len(r.alive) > 0:
		r.problem = fmt.Sprintf("left alive: %v", r.alive)
	case r.post < 0:
		r.problem = "the call's POST was not ended"
	case r.gets > r.resumes:
		r.problem = fmt.Sprintf("the client goes on resuming: %d GETs", r.gets)
	}
	if r.problem == "" && r.next != "ok" {
		r.problem = "next call: " + r.next
	}
}

// overHTTP runs the pairs, some at once, and adds their rows in order.
func (h *harness) overHTTP(only string) {
	clients, servers := h.httpClients(), h.httpPeers()
	rows := newBatch(h.jobs)
	defer rows.addTo(&h.http)
	for _, p := range pairs {
		c, found1 := clients[p.client]
		s, found2 := servers[p.server]
		if !found1 || !found2 {
			continue // not installed, which is said at the end
		}
		for _, letter := range p.events {
			e := httpEvents[letter]
			for _, belay := range []bool{false, true} {
				name := c.name + " / " + s.name + " / " + e.name
				if !strings.Contains(name, only) || belay && h.belay == "" || !belay && (e.needBelay || s.stdio) {
					continue
				}
				r := &httpRow{server: s, runsOn: letter == 'D', resumed: letter == 'r', resumes: max(1, c.resumes), receipt: "–"}
				// In 2026-07-28 a lost connection is a Stop, whatever the policy.
				r.cancels = letter == 'd' && !strings.HasSuffix(p.client, "2026")
				r.row = row{peer: c.name, event: e.name, belay: belay, noCancel: c.silent && (letter == 'a' || letter == 't')}
				rows.run(r, &r.row, name, func() error { return h.httpRow(c, e, r) })
			}
		}
	}
}

// httpRow runs one session.
func (h *harness) httpRow(c httpClient, e event, r *httpRow) error {
	dir, err := os.MkdirTemp(h.dir, "row-")
	if err != nil {
		return err
	}
	w := faketool.NewWitness(filepath.Join(dir, "witness"))
	defer sweep(w)
	runtime := filepath.Join(dir, "run")
	url, end, err := h.behind(r, dir, runtime, w.Path)
	if err != nil {
		return err
	}
	defer end()
	t, err := newTap(url, r.server.tool)
	if err != nil {
		return err
	}
	defer t.close()
	args := r.server.args
	if r.resumed {
		args = r.server.brief
	}
	config, err := json.Marshal(clientConfig{
		URL: t.url(url.Path), Mode: c.mode, Tool: r.server.tool, Arguments: args,
		Event: e.client, AfterMS: afterMS, TimeoutMS: timeoutMS,
		NextTool: "echo", NextArguments: map[string]any{"message": "still here"},
	})
	if err != nil {
		return err
	}
	p, err := h.startClient(append(append([]string{}, c.argv...), string(config)))
	if err != nil {
		return err
	}
	defer p.close(false) // its session may last as long as its server likes
	connected, err := p.step("connected", 20*time.Second)
	if err != nil {
		return err
	}
	r.era = connected.How
	if _, err := p.step("progress", 20*time.Second); err != nil {
		return err
	}
	stop, err := h.stopHTTP(p, e, r, runtime, t)
	if err != nil {
		return err
	}
	gone := strings.HasPrefix(e.name, "disconnect")
	if _, err := p.step("settled", 0); !gone && err == nil {
		r.next = p.callOK("next")
	} else if !gone {
		r.next = "it still waits"
	}
	r.observe(w, r.server.key, stop)
	r.stillAt = r.stillAt && !r.resumed // it is over: the client has its result
	if e.client == "abort" {
		time.Sleep(time.Until(stop.Add(watchAbort)))
	}
	time.Sleep(time.Until(stop.Add(watchHTTP)))
	r.gets, r.post = t.after(stop)
	if r.belay {
		r.receipt = h.receipt(runtime, r.server.tool)
	}
	switch {
	case gone:
		r.next = h.newcomer(c, t.url(url.Path))
	case r.next == "ok":
		_, _ = fmt.Fprintln(p.in, "again") // a client that is gone says so below
		r.next = p.callOK("later")
	}
	h.logf("told %q, next %q, receipt %q, %d GETs, POST %v, %d ticks", r.told, r.next, r.receipt, r.gets, r.post, w.Count(r.server.key, "tick"))
	return nil
}

// stopHTTP ends the call, or loses its connection, and returns when; it fills in
// what the client was told.
func (h *harness) stopHTTP(p *clientProcess, e event, r *httpRow, runtime string, t *tap) (time.Time, error) {
	var stop time.Time
	verdict := ""
	switch {
	case e.cancel:
		time.Sleep(afterMS * time.Millisecond) // as long as an aborting client works
		stop = time.Now()
		wait := "2s"
		if strings.Contains(e.name, "final") {
			wait = "15s" // a verdict is final after ten seconds without evidence (MCP-G32)
		}
		verdict = h.belayCancel(runtime, wait)
	case r.resumed:
		time.Sleep(afterMS * time.Millisecond)
		stop = time.Now()
		t.cut()
	case strings.HasPrefix(e.name, "disconnect"):
		time.Sleep(afterMS * time.Millisecond)
		stop = time.Now()
		killGroup(p.cmd.Process.Pid)
		r.told = "it was killed"
		return stop, nil
	}
	within := 20 * time.Second
	if r.resumed && !r.belay {
		within = 8 * time.Second // long after the call has ended
	}
	settled, err := p.step("settled", within)
	if err != nil && !r.belay && r.resumed { // a fact about others
		r.told = err.Error()
		err = nil
	}
	if err != nil || settled.How == "" {
		return stop, err
	}
	r.told = settled.How + verdict
	if stop.IsZero() {
		stop = settled.time() // a time-out settles the call itself
	}
	if e.client == "abort" {
		if s, err := p.step("stop", time.Second); err == nil {
			stop = s.time()
		}
	}
	return stop, nil
}

// newcomer makes one call with a new client.
func (h *harness) newcomer(c httpClient, url string) string {
	config, err := json.Marshal(clientConfig{
		URL: url, Mode: c.mode, Tool: "echo", Arguments: map[string]any{"message": "still here"}, Event: "wait",
		NextTool: "echo", NextArguments: map[string]any{"message": "still here"},
	})
	if err != nil {
		return err.Error()
	}
	p, err := h.startClient(append(append([]string{}, c.argv...), string(config)))
	if err != nil {
		return err.Error()
	}
	defer p.close(false)
	return p.callOK("next")
}

// receipt is Belay's final word on the one stopped call of a tool.
func (h *harness) receipt(runtime, tool string) string {
	cmd := exec.Command(h.belay, "ps", "--all", "--json")
	cmd.Env = append(os.Environ(), "BELAY_RUNTIME_DIR="+runtime, "BELAY_STATE_DIR="+runtime)
	out, err := cmd.Output()
	var runs []struct {
		Name         string           `json:"name"`
		Cancellation *json.RawMessage `json:"cancellation"`
		Verdict      string           `json:"verdict"`
	}
	if err = errors.Join(err, json.Unmarshal(out, &runs)); err != nil {
		return "belay ps: " + err.Error()
	}
	h.logf("belay ps: %s", out)
	for _, run := range runs {
		switch {
		case run.Name != tool:
		case run.Cancellation == nil:
			return "none"
		case run.Verdict == "":
			return "open"
		default:
			return run.Verdict
		}
	}
	return "no run"
}
