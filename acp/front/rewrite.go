package front

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/local"
)

// Rewrite implements [bridge.Front]. What is no array, or cannot be read, is
// returned as it is: the agent answers. An error says that nothing is fronted any
// more, because Belay ends; then, too, servers is returned.
func (f *Front) Rewrite(ctx context.Context, run *belay.Run, servers []byte) ([]byte, []bridge.Passed, error) {
	whole := wholeOf(servers)
	if len(servers) > maxServers || !json.Valid(servers) || jsonrpc.KindAt(servers, whole) != jsonrpc.ArrayValue {
		return servers, nil, nil
	}
	f.mu.Lock()
	_, err := f.sessionLocked(run)
	f.mu.Unlock()
	if err != nil {
		return servers, nil, err
	}
	var edits []jsonrpc.Edit
	var passed []bridge.Passed
	n := 0
	taken := make(map[string]bool)
	for at := range jsonrpc.Elements(servers, whole) {
		e, err := readEntry(servers, at)
		taken[e.name] = true
		if n++; n > maxEntries {
			err = belay.ErrTooMany
		}
		if err == nil {
			var more []jsonrpc.Edit
			if more, err = f.frontEntry(ctx, run, servers, &e); err == nil {
				edits = append(edits, more...)
				continue
			}
		}
		if len(passed) < 2*maxEntries { // whoever sends more knows what he does
			passed = append(passed, bridge.Passed{Name: clip(e.name), Why: err.Error()})
		}
		f.o.Log.Debug("an MCP server of the session is not behind Belay", "server", clip(e.name), "why", err)
	}
	if f.o.Scripts != nil {
		one, err := f.addScripts(ctx, run, taken)
		if err != nil {
			f.o.Log.Warn("the agent cannot be given the scripts", "error", err)
			return jsonrpc.AppendSplice(nil, servers, edits...), passed, nil
		}
		if n > 0 {
			one = append([]byte{','}, one...)
		}
		edits = append(edits, jsonrpc.Edit{At: jsonrpc.Span{Start: whole.End - 1, End: whole.End - 1}, New: one})
	}
	return jsonrpc.AppendSplice(nil, servers, edits...), passed, nil
}

// wholeOf is the value without the space around it.
func wholeOf(text []byte) jsonrpc.Span {
	const space = " \t\r\n"
	start := len(text) - len(bytes.TrimLeft(text, space))
	return jsonrpc.Span{Start: start, End: max(start, len(bytes.TrimRight(text, space)))}
}

// frontEntry returns the edits that put an entry behind Belay.
func (f *Front) frontEntry(ctx context.Context, run *belay.Run, frame []byte, e *entry) ([]jsonrpc.Edit, error) {
	if e.kind != stdio {
		url, err := f.open(ctx, run, e)
		if err != nil {
			return nil, err
		}
		return []jsonrpc.Edit{
			{At: e.url, New: quote(url)},
			setMember(frame, e.at, e.headers, "headers", []byte("[]")),
		}, nil
	}
	if f.o.Server == nil {
		return nil, errNoSocket
	}
	edits := []jsonrpc.Edit{setMember(frame, e.at, e.env, "env", f.environment(run, frame, e))}
	if e.wrapped(f.o.Belay) { // it only has to find the session
		return edits, nil
	}
	return append(
		edits,
		jsonrpc.Edit{At: e.command, New: quote(f.o.Belay)},
		setMember(frame, e.at, e.args, "args", f.arguments(frame, e)),
	), nil
}

// setMember is the edit that sets a member, which is at the span if it is there.
func setMember(frame []byte, object, at jsonrpc.Span, key string, value []byte) jsonrpc.Edit {
	if at.Ok() {
		return jsonrpc.Edit{At: at, New: value}
	}
	return jsonrpc.InsertMember(frame, object, key, value)
}

// arguments is the command line behind "belay", as JSON. What the entry says is
// copied as it is written there.
func (f *Front) arguments(frame []byte, e *entry) []byte {
	list := [][]byte{quote("wrap")}
	for _, flag := range f.o.Wrap {
		list = append(list, quote(flag))
	}
	if e.name != "" && len(e.name) <= maxName {
		list = append(list, quote("--name="+e.name))
	}
	list = append(list, quote("--"), e.command.Of(frame))
	for at := range jsonrpc.Elements(frame, e.args) {
		list = append(list, at.Of(frame))
	}
	return array(list)
}

// maxName is the longest name that people are shown.
const maxName = 256

// environment is the entry's, as JSON, with what attaches the process below the
// session. Of two values for a name agents take the first or the last: there is
// one.
func (f *Front) environment(run *belay.Run, frame []byte, e *entry) []byte {
	ours := append([]string{local.EnvParent + "=" + f.o.Server.Ticket(run.ID())}, f.o.Env...)
	var list [][]byte
	for _, v := range e.envs {
		if !slices.ContainsFunc(ours, func(o string) bool { return strings.HasPrefix(o, v.name+"=") }) {
			list = append(list, v.at.Of(frame))
		}
	}
	for _, o := range ours {
		name, value, _ := strings.Cut(o, "=")
		pair := append([]byte(`{"name":`), quote(name)...)
		pair = append(pair, `,"value":`...)
		list = append(list, append(append(pair, quote(value)...), '}'))
	}
	return array(list)
}

func array(list [][]byte) []byte {
	return slices.Concat([]byte{'['}, bytes.Join(list, []byte{','}), []byte{']'})
}

func quote(text string) []byte { return jsonrpc.AppendString(nil, text) }
