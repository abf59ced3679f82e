// Package front puts the MCP servers that an editor names for a session behind
// Belay, so that a Stop of a turn reaches the calls that the agent makes at them.
//
// # The model
//
// [Front.Rewrite] reads the mcpServers of session/new, load, resume or fork and
// gives the agent other ones of the same names (tool names depend on them):
//
//   - A command becomes "belay wrap -- COMMAND", with a ticket that attaches it
//     below the session's run (ACP-B11).
//   - An http or sse server becomes a path on a loopback listener of this process
//     that nobody can guess. The URL and the headers, and with them the user's
//     secrets, stay here (ACP-B12).
//
// What is none of these, cannot be read, or needs an OAuth login of the agent's
// own passes as it is, and is named with the reason.
//
// A server serves all turns of its session, so each call asks where it hangs when
// it begins ([Front.Where]): below the tool call of the agent that it belongs to,
// else below the turn that runs, else below the session (ACP-B13). Servers of
// this process ask directly; a wrap process asks over the local socket, and hears
// the Stops of what it was told over the same connection. From there on the MCP
// gateway's rules hold: told, grace, force, receipt.
//
// Servers of the agent's own configuration are not the editor's to name. Where the
// user has put them behind belay wrap, they attach below the agent's run, and their
// calls are placed, too, as long as one turn runs or they name their tool call.
//
// # Which tool call
//
// The bridge registers the agent's tool calls below their turn, with the label
// tool_call_id. A call belongs to the one whose id it names in _meta, for which it
// waits a moment, because agents tell of it on another pipe; else to the only open
// one whose name has the names of its server and its tool, or begins with that of
// its tool; else to the turn.
//
// # Guarantees
//
//   - The agent never sees the URL, the headers or the query of a server that is
//     fronted by HTTP.
//   - Every byte of the array that need not change stays; what cannot be read
//     passes unchanged, and the agent answers.
//   - A call that begins after Place has returned hangs below that turn; one that
//     begins below a turn that is stopped never reaches its server.
//   - A Stop of a turn or a tool call leaves alone the calls of others, and the
//     servers, unless the gateway's rules of enforcement say otherwise.
//   - Nobody gets to a server by its listener who does not know its path, or from
//     a foreign web page.
//   - [Front.Close] ends what a session's servers hold here; wrap processes that
//     the agent has not ended by then are told to end.
//   - Entries, paths, sessions and times are bounded; [Front.End] waits for every
//     goroutine, as long as its context allows.
package front
