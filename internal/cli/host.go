package cli

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/proc"
)

// host is what every command that holds runs has: a tree, a socket by which
// other Belay processes see it, and its place below the run that started it.
type host struct {
	tree   *belay.Tree
	parent *local.Parent
	server *local.Server // nil: nobody can see the runs; said once
	facts  *peers.Facts
	log    *slog.Logger
	owner  string
}

// openHost never fails: a process that cannot be seen by others still works.
func openHost(ctx context.Context, env *Env, fronts string) *host {
	above := os.Getppid() // what asks through us must not answer itself
	return openHostAsking(ctx, env, fronts, nil, func(pid int) bool { return proc.Descends(pid, above) })
}

// openHostAsking is openHostAs for a process whose questions have no other door than
// its socket. barred are processes that may answer none of them, beside those inside
// a run's process tree; nil: no others.
func openHostAsking(ctx context.Context, env *Env, fronts string, place func(belay.RunID, local.Asked) []belay.RunID, barred func(pid int) bool) *host {
	return openHostWith(ctx, env, plainly, func(h *host, o *local.Options) {
		o.Fronts, o.Place, o.Approvals, o.Barred = fronts, place, h.tree, barred
	})
}

// plainly lets other processes see the tree as it is.
func plainly(t *belay.Tree) belay.Control { return t }

// openHostAs is openHost with what other processes see of the tree, and with who
// says below which runs the calls of processes hang that are attached here; nil:
// below the run of their ticket.
func openHostAs(ctx context.Context, env *Env, fronts string, as func(*belay.Tree) belay.Control, place func(belay.RunID, local.Asked) []belay.RunID) *host {
	return openHostWith(ctx, env, as, func(_ *host, o *local.Options) { o.Fronts, o.Place = fronts, place })
}

func openHostWith(ctx context.Context, env *Env, as func(*belay.Tree) belay.Control, set func(*host, *local.Options)) *host {
	h := &host{tree: belay.NewTree(belay.Options{}), log: newLog(env), owner: userName()}
	facts, err := peers.Load()
	if err != nil {
		env.Warnf("%v", err)
	}
	h.facts = facts
	if !proc.Proven() {
		env.Warnf("on this system not every guarantee is proven by tests: %s", proc.Guarantees())
	}
	h.parent = local.FromEnv(ctx, env.Getenv, h.stopAll, func(text string) { env.Warnf("%s", text) })
	o := local.Options{
		Dir: local.Dir(env.Getenv), Control: as(h.tree), Version: Version(),
		InTree: proc.InTree, Parent: h.parent, Log: h.log,
	}
	set(h, &o)
	h.server, err = local.Listen(ctx, o)
	if err != nil {
		env.Warnf("other Belay processes cannot see these runs: %v", err)
	}
	return h
}

// stopAll passes a Stop of the run above on to everything here.
func (h *host) stopAll(req belay.CancelRequest) {
	req.Wait = 0
	if _, err := h.tree.Cancel(context.Background(), req); err != nil {
		h.log.Error("a Stop of the run above could not be passed on", "error", err)
	}
}

// ticket is the value of BELAY_PARENT for a process that works for a run.
func (h *host) ticket() func(belay.RunID) string {
	if h.server == nil {
		return nil
	}
	return h.server.Ticket
}

// hostLimit bounds the end of a host whose runs do not end. What is forced is
// over long before; whoever can only be told, a remote server say, has so long
// to say that it has stopped. Waiting as long as a receipt would (ConfirmAfter)
// proves little more, and nobody waits so long for a program to end.
const hostLimit = 2 * time.Second

func (h *host) close() {
	ctx, end := context.WithTimeoutCause(context.Background(), hostLimit, &belay.Cancellation{Cause: belay.CauseShutdown})
	defer end()
	runs, _ := h.tree.List(ctx, belay.Filter{}) // an own tree answers
	if err := h.tree.Close(ctx); err != nil {
		h.sayUnproven(runs)
	}
	if h.server != nil {
		h.server.Close()
	}
	if h.parent != nil {
		h.parent.Close()
	}
}

// sayUnproven names the work that was told to stop and may go on: nobody can ask
// for its receipt any more.
func (h *host) sayUnproven(runs []belay.Info) {
	const most = 5
	said := 0
	for i := range runs {
		d, err := h.tree.Get(context.Background(), runs[i].ID)
		switch {
		case err != nil || d.Kind == belay.KindSession || d.Receipt == nil || d.Receipt.OK():
			continue
		case said == most:
			h.log.Info("and more work of which nothing proves that it has stopped")
			return
		}
		said++
		text, _ := verdictWords(d.Receipt)
		level := slog.LevelInfo
		if len(d.Receipt.Survivors) > 0 {
			level = slog.LevelWarn
		}
		h.log.Log(context.Background(), level, "Belay ends, and does not wait longer for proof that this has stopped",
			"run", d.ID, "what", title(d.Name, d.Kind, d.Server), "verdict", text)
	}
}

// newLog writes to standard error, what BELAY_LOG asks for: debug, info
// (default), warn, error or off.
func newLog(env *Env) *slog.Logger {
	level := slog.LevelInfo
	switch text := strings.ToLower(env.Getenv(envLog)); text {
	case "":
	case "off":
		return slog.New(slog.DiscardHandler)
	default:
		if err := level.UnmarshalText([]byte(text)); err != nil {
			env.Warnf("BELAY_LOG=%q is none of debug, info, warn, error, off; info is used", text)
		}
	}
	if env.Getenv(envLogFormat) == "json" {
		return slog.New(slog.NewJSONHandler(env.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: tidyAttr})).With("belay", os.Getpid())
	}
	return slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: shortAttr})).With("belay", os.Getpid())
}

// What says how much is logged, and in which form: text (default) or json.
const (
	envLog       = "BELAY_LOG"
	envLogFormat = "BELAY_LOG_FORMAT"
)

// shortAttr leaves out the date, which whoever collects the log adds.
func shortAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(slog.TimeKey, a.Value.Time().Format("15:04:05.000"))
	}
	return tidyAttr(groups, a)
}

// tidyAttr leaves out an error that there was not, and writes times with their
// unit: as a number nobody could tell that it counts nanoseconds.
func tidyAttr(_ []string, a slog.Attr) slog.Attr {
	switch {
	case a.Value.Kind() == slog.KindAny && a.Value.Any() == nil:
		return slog.Attr{}
	case a.Value.Kind() == slog.KindDuration:
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// environment is that of a command which works for a run: ours, with the ticket of
// the run; nil: ours, with the ticket that we came with.
func (h *host) environment(run belay.RunID) []string {
	ticket := h.ticket()
	if ticket == nil {
		return nil
	}
	prefix := local.EnvParent + "="
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, prefix) })
	return append(env, prefix+ticket(run))
}
