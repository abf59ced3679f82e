// Package bridge stands between an editor and its agent: agent to the one, client
// to the other (ACP-B1). What either says passes as it came; when somebody presses
// Stop, it sees to it that what the agent has started really stops.
//
// # The model
//
// A hop is one peer with its connection. A request that passes has the asker's id
// at one hop and one of ours, b-1 and so on, at the other (ACP-B3); each side of it
// is open or settled on its own, so that an asker can have its answer while the
// other side still owes one, which is then dropped. What is put into a lane leaves
// in this order (ACP-B2).
//
// A session is a run below [Options.Parent], a turn below its session, a tool call
// below its turn, what the agent asks of the editor below its tool call or turn
// (ACP-B8). Each is registered before the message that starts it is passed on. In
// version 1 a turn is one session/prompt; in version 2 it is the foreground work
// from running to idle (ACP-B9).
//
// # The Stop
//
// From whatever door it comes (the editor, belay cancel, a deadline, the end of a
// peer), a Stop of a turn goes through the tree and arrives at the turn's run. Then,
// counted from that moment:
//
//	0                     one session/cancel to the agent; its open questions are
//	                      answered as if the user had put them away
//	1 s                   what else it has asked of the editor is cut off, its
//	                      terminals there are killed
//	its word + linger,    a look at the processes; those of tool calls that were open
//	at latest grace       get SIGTERM
//	+ kill_after          SIGKILL
//	settle                without its word: the editor gets the turn's end from us
//	agent_deadline        still without: the session is closed, the agent killed
//
// A person's second press takes the next step at once, and the turn's other
// processes too. What the agent says of its end is never taken for proof: the look at
// the processes is. An end of another kind than cancelled becomes cancelled, unless
// it came too soon to be due to the Stop (ACP-B21).
//
// What processes there are, and what stands behind the MCP servers, the bridge does
// not know: [Offspring], [Agent] and [Front] do.
//
// # Guarantees
//
//   - A request that was passed on has one answer: the other side's, or ours.
//   - A turn has one end for the editor, and nothing of the turn follows it.
//   - The agent gets at most one session/cancel for each Stop of a turn.
//   - Reading the editor never waits for anything: not for the agent, a snapshot, or
//     an MCP server. So a Stop takes effect when it is read.
//   - No lock is held while something is written, a run is cancelled, or a seam is
//     called.
//   - Every line, queue, table and id has a bound; what does not fit gets an error.
//   - When Serve returns, all its goroutines have ended, but for a read from a
//     terminal that cannot be interrupted.
package bridge
