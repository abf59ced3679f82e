package front

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/serve"
)

// Scripts that the user gives the agent: one more server beside the editor's own, in
// every session. It is served here like one that is reached by HTTP, since here is
// who can ask the person at the editor; an agent that takes commands alone gets
// "belay wrap" in front of it.

// kindScripts is the kind of entry that no editor can name.
const kindScripts kind = "scripts"

var _ bridge.Adder = (*Front)(nil)

// Takes implements [bridge.Adder]. Until it is said, the agent takes commands alone.
func (f *Front) Takes(http bool) { f.webAgent.Store(http) }

// Adds implements [bridge.Adder].
func (f *Front) Adds() bool { return f.o.Scripts != nil }

// addScripts returns the entry of the scripts as JSON. Its name is none of the
// others'.
func (f *Front) addScripts(ctx context.Context, run *belay.Run, taken map[string]bool) ([]byte, error) {
	d := *f.o.Scripts
	name := d.Name
	for n := 2; taken[name]; n++ {
		name = d.Name + "-" + strconv.Itoa(n)
	}
	d.Name = name
	url, err := f.openScripts(ctx, run, d)
	if err != nil {
		return nil, err
	}
	if f.webAgent.Load() {
		return object(member{"type", quote("http")}, member{"name", quote(name)}, member{"url", quote(url)}, member{"headers", []byte("[]")}), nil
	}
	args := [][]byte{quote("wrap")}
	for _, flag := range f.o.Wrap {
		args = append(args, quote(flag))
	}
	args = append(args, quote("--name="+name), quote("--url"), quote(url))
	env := []byte("[]")
	if f.o.Server != nil {
		env = f.environment(run, nil, &entry{})
	}
	return object(member{"name", quote(name)}, member{"command", quote(f.o.Belay)}, member{"args", array(args)}, member{"env", env}), nil
}

// member is one of a JSON object.
type member struct {
	name  string
	value []byte
}

func object(members ...member) []byte {
	dst := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(jsonrpc.AppendString(dst, m.name), ':'), m.value...)
	}
	return append(dst, '}')
}

// openScripts gives the scripts a path of the session, and returns its URL.
func (f *Front) openScripts(ctx context.Context, run *belay.Run, d serve.Definition) (string, error) {
	base, err := f.listener(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoListen, err)
	}
	e := entry{kind: kindScripts, name: d.Name}
	if path := f.known(run, &e); path != "" {
		return base + path, nil
	}
	d.Labels = map[string]string{labelServer: cutLabel(d.Name)}
	path := strings.ToLower(rand.Text()) // 130 bits
	lone, err := serve.NewLone(serve.Options{
		Tree: f.o.Tree, Parent: run.ID(), Owner: f.o.Owner, Log: f.o.Log, Facts: f.o.Facts, Worker: f.o.Worker,
		Placer: spot{f, run.ID(), d.Name}, Asker: asker{f, run.ID()},
	}, d, "/"+path)
	if err != nil {
		return "", err
	}
	if err := f.add(run, &site{path: path, name: d.Name, of: e, lone: lone}); err != nil {
		_ = lone.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown})
		return "", err
	}
	return base + path, nil
}

// Ask puts a question about a call of a session's server to the person at the editor.
type Ask func(ctx context.Context, session belay.RunID, call *belay.Run, a belay.Approval) (belay.Decision, error)

// AskBy says who asks. Until it is said, nobody can be asked but the agent.
func (f *Front) AskBy(ask Ask) { f.asks.Store(&ask) }

var errNobody = errors.New("nobody at the editor can be asked")

// asker asks for the calls of one server of this process.
type asker struct {
	f   *Front
	run belay.RunID // of the session
}

var _ gateway.Asker = asker{}

// AskCall implements [gateway.Asker].
func (a asker) AskCall(ctx context.Context, call *belay.Run, about belay.Approval) (belay.Decision, error) {
	ask := a.f.asks.Load()
	if ask == nil {
		return belay.Decision{}, errNobody
	}
	return (*ask)(ctx, a.run, call, about)
}
