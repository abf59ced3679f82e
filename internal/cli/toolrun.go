package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
	"github.com/belayhq/belay/serve"
)

type toolRunCmd struct {
	Params      string        `short:"p" placeholder:"JSON" help:"The parameters: a JSON object, or @FILE; default: {}."`
	Test        bool          `help:"Instead: make the calls of test functions that the script has at its top level."`
	Yes         bool          `short:"y" help:"Approve what the tool asks." xor:"answer"`
	No          bool          `short:"n" help:"Decline what the tool asks." xor:"answer"`
	AutoApprove bool          `help:"Tools that permit it need no approval."`
	AllowHost   []string      `placeholder:"HOST" sep:"none" help:"Let the script connect to this host (name, name:port, *.name or *)."`
	EditorRoot  string        `type:"path" placeholder:"FOLDER" help:"Give the script an editor over this folder."`
	EditorWrite bool          `help:"Let the editor write."`
	Memory      config.Size   `default:"256MiB" placeholder:"SIZE" help:"What the worker may use."`
	CPU         time.Duration `name:"cpu" placeholder:"DURATION" help:"How long the interpreter may run; 0: no bound."`
	Deadline    time.Duration `placeholder:"DURATION" help:"Stop each call after this time; 0: never."`
	Grace       time.Duration `default:"2s" help:"Time between the Stop and the interrupt."`
	KillAfter   time.Duration `default:"3s" help:"Time between the interrupt and the kill."`
	JSON        bool          `name:"json" help:"Print JSON: the result, or with --test an array of them."`
	Dir         string        `arg:"" name:"dir" type:"path" help:"The tool's folder."`
}

// Help implements kong.HelpProvider.
func (*toolRunCmd) Help() string {
	return `Calls a tool as a caller would, in a worker process. Reports and the script's console go to standard error, the result to
standard output. Ctrl-C cancels as a user would: onCancel's text is printed, with the receipt; a second one interrupts the script
at once, a third kills the worker. What the tool asks is asked on the terminal; where there is none, and neither --yes nor --no,
nobody answers.

Exit codes: 0 success, 1 the tool failed or was not approved, 2 it could not be called, 3 stopped and not confirmed, 4 --test found
no tests, 6 processes left alive, 130 stopped.

Examples:

    belay tool run count_words --params '{"texts": ["one two"]}'
    belay tool run ./tools/feeds --params @params.json --allow-host blog.example --json
    belay tool run tidy_up --test`
}

// toolCalls is one command under way.
type toolCalls struct {
	cmd     *toolRunCmd
	env     *Env
	host    *host
	signals chan os.Signal
	client  *toolClient
	view    *toolView
	person  *person
	console sync.WaitGroup       // what reads the worker's standard error
	stderr  *os.File             // the other end of that
	seen    map[belay.RunID]bool // runs of earlier calls
	ended   bool                 // by a signal that is not a press: nothing more is begun
}

// toolOutcome is how one call ended; the shape that --json prints.
type toolOutcome struct {
	Tool     string           `json:"tool"`
	Test     *script.TestCall `json:"test,omitempty"`
	Outcome  belay.Outcome    `json:"outcome"`
	Success  bool             `json:"success"`
	Content  []toolPart       `json:"content"`
	Partial  *string          `json:"partial,omitempty"` // what onCancel handed back
	Error    string           `json:"error,omitempty"`   // why there is no result
	Reports  []toolReport     `json:"reports"`
	Receipt  *belay.Receipt   `json:"receipt,omitempty"`
	Duration float64          `json:"seconds"`
}

// toolPart is one piece of a result, in MCP's words.
type toolPart struct {
	Type        string `json:"type"`
	Text        string `json:"text,omitempty"`
	Data        []byte `json:"data,omitempty"`
	MIMEType    string `json:"mimeType,omitempty"`
	Annotations *struct {
		Audience []string `json:"audience"`
	} `json:"annotations,omitempty"`
}

// forUser reports whether a part is for the person and not for the model.
func (p *toolPart) forUser() bool {
	return p.Annotations != nil && len(p.Annotations.Audience) == 1 && p.Annotations.Audience[0] == "user"
}

// toolReport is one report, as it stood last.
type toolReport struct {
	ID      string `json:"id,omitempty"`
	Message string `json:"message"`
}

// listed is one tool of the worker.
type listed struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Meta  struct {
		Tests []script.TestCall `json:"io.github.belayhq/tests"`
	} `json:"_meta"`
}

// Run calls the tool, or its tests.
func (c *toolRunCmd) Run(env *Env) error {
	params, err := c.params()
	if err != nil {
		return err
	}
	if c.Grace <= 0 || c.KillAfter <= 0 || c.Deadline < 0 || c.CPU < 0 {
		return usagef("tool run: --grace and --kill-after must be above 0, --deadline and --cpu not below it (got %v, %v, %v, %v)", c.Grace, c.KillAfter, c.Deadline, c.CPU)
	}
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return usagef("tool run: %s is no folder", c.Dir)
	}
	r := &toolCalls{cmd: c, env: env, signals: make(chan os.Signal, 8), seen: make(map[belay.RunID]bool)}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(r.signals, sig)
		}
	}
	defer signal.Stop(r.signals)
	r.view = newToolView(env)
	r.host = openHost(context.Background(), env, "tool run "+c.Dir)
	defer r.host.close()
	if err := r.open(); err != nil {
		r.hush()
		return startError("tool run", []string{os.Args[0]}, err)
	}
	code, err := r.all(params)
	closed := r.client.close(belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the calls are over"})
	r.hush()
	if err == nil && closed != nil {
		err = exitErrorf(ExitFailed, "tool run: %w", closed)
	}
	if err != nil {
		return err
	}
	return exitWith(code)
}

// params reads --params.
func (c *toolRunCmd) params() (json.RawMessage, error) {
	text := []byte(c.Params)
	switch {
	case c.Params == "":
		return json.RawMessage("{}"), nil
	case c.Test:
		return nil, usagef("tool run: --params and --test exclude each other: tests have their own")
	case strings.HasPrefix(c.Params, "@"):
		var err error
		if text, err = os.ReadFile(c.Params[1:]); err != nil {
			return nil, usagef("tool run: --params: %v", err)
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, usagef("tool run: --params must be a JSON object, such as '{\"name\": \"value\"}': %s", because(err))
	}
	return text, nil
}

// because is an error's text, where there is one.
func because(err error) string {
	if err == nil {
		return "it is none"
	}
	return err.Error()
}

var errWatched = errors.New("the calls are over")

// open starts the worker: as belay serve would have it, but for one process alone.
func (r *toolCalls) open() error {
	c := r.cmd
	server, err := config.CompleteScripts(config.Server{
		Name: "tool",
		Policy: config.Policy{
			ToolPolicy: config.ToolPolicy{Grace: config.Some(c.Grace), KillAfter: config.Some(c.KillAfter), Deadline: config.Some(c.Deadline)},
			Isolation:  config.Some("shared"), AtOnce: config.Some(1), Spares: config.Some(0),
		},
		Scripts: &config.Scripts{
			Dirs: []string{c.Dir}, AllowHosts: c.AllowHost, AutoApprove: c.AutoApprove, ApprovalTimeout: toolAskTimeout,
			Memory: c.Memory, CPU: c.CPU, EditorRoot: c.EditorRoot, EditorWrite: c.EditorWrite,
		},
	})
	if err != nil {
		return usagef("tool run: %v", err)
	}
	r.client = &toolClient{progress: r.view.report}
	var asker gateway.Asker
	if r.person = newPerson(r.env, r.view); r.person != nil && !c.Yes && !c.No {
		r.client.elicit = r.person.asked
	} else {
		asker = &flagAsker{c, r.view}
	}
	cfg, err := serve.Gateway(serve.Options{
		Tree: r.host.tree, Parent: r.host.parent.Run(), Owner: r.host.owner, Log: r.log(), Facts: r.host.facts, Asker: asker,
	}, serve.Definition{Server: server})
	if err != nil {
		return usagef("tool run: %v", err)
	}
	if c.Test {
		at := slices.Index(cfg.Command, "--")
		cfg.Command = slices.Insert(cfg.Command, at, "--test")
	}
	if err := r.listen(); err != nil {
		return err
	}
	cfg.Stderr, cfg.Env = r.stderr, append(proc.Environment(), envLogFormat+"=json")
	return openToolClient(context.Background(), cfg, r.client)
}

// toolAskTimeout is how long a question stays on the terminal.
const toolAskTimeout = 10 * time.Minute

// log is the gateway's, for whoever asks for one: what an author has to know of it is
// on the receipt.
func (r *toolCalls) log() *slog.Logger {
	if r.env.Getenv(envLog) == "" {
		return slog.New(slog.DiscardHandler)
	}
	return r.host.log
}

// listen shows what the worker writes to its standard error.
func (r *toolCalls) listen() error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	r.stderr = to
	r.console.Go(func() { defer from.Close(); r.view.console(from) })
	return nil
}

// hush ends that, once there is no worker any more.
func (r *toolCalls) hush() {
	if r.stderr != nil {
		_ = r.stderr.Close()
	}
	r.console.Wait()
}

// flagAsker answers as the command line says.
type flagAsker struct {
	cmd  *toolRunCmd
	view *toolView
}

// AskCall implements gateway.Asker.
func (f *flagAsker) AskCall(_ context.Context, _ *belay.Run, a belay.Approval) (belay.Decision, error) {
	d := belay.Decision{Choice: belay.ChoiceDismissed, Via: "flag"}
	q := &a.Question
	f.view.linef("%s: %s", q.Title, q.Text)
	switch {
	case f.cmd.Yes && q.Primary != "":
		d.Choice = belay.ChoiceApproved
		f.view.linef("approved by --yes (%s)", q.Primary)
	case f.cmd.Yes:
		f.view.linef("--yes: the question has no button that agrees; it was closed")
	case f.cmd.No:
		d.Choice = belay.ChoiceDeclined
		f.view.linef("declined by --no")
	default:
		f.view.linef("there is no terminal to ask on: the question was closed (--yes and --no answer it)")
	}
	return d, nil
}

// all makes every call that was asked for, and is the exit code.
func (r *toolCalls) all(params json.RawMessage) (int, error) {
	var list struct {
		Tools []listed `json:"tools"`
	}
	if err := r.client.call(context.Background(), "tools/list", map[string]any{}, &list); err != nil {
		return 0, exitErrorf(ExitFailed, "tool run: %w", err)
	}
	switch len(list.Tools) {
	case 1:
	case 0:
		return 0, exitErrorf(ExitUsage, "tool run: %s has no tool that can be loaded (see \"belay tool check\")", r.cmd.Dir)
	default:
		var names []string
		for _, t := range list.Tools {
			names = append(names, t.Name)
		}
		return 0, exitErrorf(ExitUsage, "tool run: %s holds %d tools (%s); name the folder of one", r.cmd.Dir, len(names), fit(strings.Join(names, ", "), 200))
	}
	tool := list.Tools[0]
	if r.cmd.Test {
		return r.tests(tool)
	}
	o, code, err := r.one(tool, params, nil)
	if err != nil {
		return 0, err
	}
	if r.cmd.JSON {
		return code, printObject(r.env.Stdout, o)
	}
	return code, nil
}

// tests makes the calls of test functions, one after the other, until one is
// stopped.
func (r *toolCalls) tests(tool listed) (int, error) {
	if len(tool.Meta.Tests) == 0 {
		return 0, exitErrorf(ExitNothing, "tool run: %s calls no test function at its top level (what AssistantTool's registrations return)", tool.Name)
	}
	all := []toolOutcome{}
	code := ExitDone
	failed := 0
	for i := range tool.Meta.Tests {
		t := &tool.Meta.Tests[i]
		r.view.linef("test %d of %d: %s %s", i+1, len(tool.Meta.Tests), t.Kind, fit(string(t.Params), 120))
		if _, ok := t.Rehearsal(); !ok {
			r.view.linef("left out: it needs a user interface")
			continue
		}
		o, ended, err := r.one(tool, t.Params, t)
		if err != nil {
			return 0, err
		}
		all = append(all, o)
		if ended != ExitDone {
			failed++
			code = ended
		}
		if r.ended || o.Outcome == belay.Cancelled {
			break
		}
	}
	r.view.linef("%s made, %d failed", count(len(all), "test call"), failed)
	if r.cmd.JSON {
		return code, printJSON(r.env.Stdout, all)
	}
	return code, nil
}

// one makes one call, sees it to its end, and prints what came of it.
func (r *toolCalls) one(tool listed, params json.RawMessage, test *script.TestCall) (toolOutcome, int, error) {
	o := toolOutcome{Tool: tool.Name, Test: test, Content: []toolPart{}}
	meta := map[string]any{"progressToken": "reports"}
	if test != nil {
		rehearsal, _ := test.Rehearsal()
		meta[worker.MetaTest] = rehearsal
	}
	r.view.begin()
	begun := time.Now()
	answer, err := r.client.start("tools/call", map[string]any{"name": tool.Name, "arguments": params, "_meta": meta})
	if err != nil {
		return o, 0, exitErrorf(ExitFailed, "tool run: %w", err)
	}
	run, reply, err := r.wait(tool.Name, answer)
	if err != nil {
		return o, 0, exitErrorf(ExitFailed, "tool run: %w", err)
	}
	o.Reports, o.Duration = r.view.ended(), time.Since(begun).Seconds()
	return r.conclude(o, run, reply)
}

// wait waits for the answer, or for the Stop, and hands signals on to the run. The run
// is nil if the call never became one.
func (r *toolCalls) wait(tool string, answer <-chan toolReply) (run *belay.Run, reply toolReply, err error) {
	var early []os.Signal // that came before there was a run
	var stopped <-chan struct{}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case sig := <-r.signals:
			if run == nil {
				early = append(early, sig)
				break
			}
			r.signal(run, sig)
		case <-look.C:
			if run = r.find(tool); run == nil {
				break
			}
			look.Stop()
			stopped = run.Context().Done()
			for _, sig := range early {
				r.signal(run, sig)
			}
		case <-stopped:
			stopped = nil
			if run.Cancellation() != nil {
				return run, r.rest(run, answer), nil
			}
		case got, ok := <-answer:
			if run == nil {
				run = r.find(tool)
			}
			switch {
			case run != nil && run.Cancellation() != nil: // the answer to a Stop was faster than its news
				r.rest(run, nil)
			case !ok:
				err = errors.Join(errToolGone, r.client.session.Err())
			}
			return run, got, err
		}
	}
}

// lookEvery is how often the run of a call is looked for that has just been sent.
const lookEvery = 5 * time.Millisecond

// find is the run of the call that was sent last, or nil.
func (r *toolCalls) find(tool string) *belay.Run {
	list, err := r.host.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
	if err != nil {
		return nil
	}
	for i := range list {
		if id := list[i].ID; list[i].Name == tool && !r.seen[id] {
			run, err := r.host.tree.Run(id)
			if err != nil {
				return nil
			}
			r.seen[id] = true
			return run
		}
	}
	return nil
}

// rest waits for the verdict on a run that was stopped; further signals take the next
// step.
func (r *toolCalls) rest(run *belay.Run, answer <-chan toolReply) (reply toolReply) {
	ctx, end := context.WithCancelCause(context.Background())
	final := make(chan struct{})
	go func() { defer close(final); _, _ = run.Wait(ctx) }()
	defer func() { end(errWatched); <-final }()
	for {
		select {
		case sig := <-r.signals:
			r.signal(run, sig)
		case got, ok := <-answer:
			answer = nil
			if ok {
				reply = got
			}
		case <-final:
			return reply
		}
	}
}

// signal is what a signal means: Ctrl-C is a person's Stop, each further one the next
// step; SIGTERM and SIGHUP are the end of it all.
func (r *toolCalls) signal(run *belay.Run, sig os.Signal) {
	request := belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{run.ID()}}, Escalate: true,
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: r.host.owner, Via: viaTerminal, Reason: "Ctrl-C"},
	}
	if sig != syscall.SIGINT {
		r.ended = true
		request.Now = true
		request.Cancellation = belay.Cancellation{Cause: belay.CauseShutdown, Via: "signal", Reason: fmt.Sprintf("belay got %s", sig)}
	}
	switch {
	case run.Cancellation() == nil:
		r.view.linef("stopping; Ctrl-C again interrupts the script")
	case sig == syscall.SIGINT:
		r.view.linef("stopping it by force")
	}
	if _, err := r.host.tree.Cancel(context.Background(), request); err != nil {
		r.view.linef("%v", err)
	}
}

// conclude says what came of a call, and with which exit code.
func (r *toolCalls) conclude(o toolOutcome, run *belay.Run, reply toolReply) (toolOutcome, int, error) {
	if run != nil {
		o.Outcome = run.Info().Outcome
		if run.Cancellation() != nil {
			return r.stopped(o, run)
		}
	}
	if reply.err != nil {
		o.Error = reply.err.Message
		if o.Outcome == "" || o.Outcome == belay.Pending {
			o.Outcome = belay.Failed
		}
		if !r.cmd.JSON {
			r.view.linef("the call failed: %s", o.Error)
		}
		if reply.err.Code == -32602 {
			return o, ExitUsage, nil
		}
		return o, ExitFailed, nil
	}
	var result struct {
		Content []toolPart `json:"content"`
		IsError bool       `json:"isError"`
	}
	if err := json.Unmarshal(reply.result, &result); err != nil {
		return o, 0, exitErrorf(ExitFailed, "tool run: the worker's answer cannot be read: %w", err)
	}
	if o.Outcome == "" || o.Outcome == belay.Pending {
		o.Outcome = belay.Completed
		if result.IsError {
			o.Outcome = belay.Failed
		}
	}
	o.Success, o.Content = !result.IsError, append(o.Content, result.Content...)
	if !r.cmd.JSON {
		r.view.result(&o)
	}
	if !o.Success {
		return o, ExitFailed, nil
	}
	return o, ExitDone, nil
}

// stopped is the end of a call that was stopped: what it had, and the receipt.
func (r *toolCalls) stopped(o toolOutcome, run *belay.Run) (toolOutcome, int, error) {
	o.Receipt = run.Receipt()
	if o.Receipt.Partial != "" {
		o.Partial = &o.Receipt.Partial
	}
	if !r.cmd.JSON {
		if o.Partial != nil {
			r.view.text(*o.Partial)
		}
		r.view.receipt(o.Receipt)
	}
	switch {
	case len(o.Receipt.Survivors) > 0:
		return o, ExitSurvivors, nil
	case !o.Receipt.OK():
		return o, ExitUnconfirmed, nil
	}
	return o, ExitStopped, nil
}
