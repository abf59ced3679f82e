// Package fakeagent is a scripted ACP agent for tests: obedient, or with one of the
// defects that real agents have. It says one thing and does another on demand:
// reports cancelled while its shell runs on, ignores cancels, ends turns with another
// reason, twice, late, never or under another id, floods, dies, waits for ever for a
// permission, or is poisoned by a second session/cancel.
//
// # What a turn does
//
// The text of a prompt that begins with { is a [Turn] in JSON: what is to happen in
// it, and which [Mode] the agent has when it is stopped. Any other text gets the
// default of [Options]. So one agent can show another defect in each turn.
//
// # Two ways to run it
//
// [Serve] speaks over any pipes, also in virtual time: it uses package time and
// nothing else of the machine, unless a turn names a tool, which is a process. A
// binary that calls [MaybeRun] first thing can be started as a process with the
// command line of [Command].
//
// # The witness
//
// What the agent reads and does it writes into a file by itself, one line for each
// event, in the format of internal/faketool: time, pid, key, event, detail. Keys are
// the session ids, "agent" for what belongs to none. The events are prompt, cancel
// (session/cancel), request-cancel ($/cancel_request in either form), tool (with the
// pid), tool-killed, answer (what a request of its own got), end (what it said), eof.
//
// The JSON is hand-made: a fake that cannot break the protocol proves nothing about
// those who must survive it. Every agent that is a process ends by itself after its
// life is over, at most two minutes.
package fakeagent
