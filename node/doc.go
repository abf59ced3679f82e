// Package node is one Belay server that several people use: the hub with its
// MCP endpoints, the admin API over the same runs, who may do what, what is
// remembered, and what keeps new calls out. It joins parts that do not know one
// another (serve, admin, auth, ledger) and adds nothing of its own but the
// joints.
//
// # The model
//
//	/mcp, /mcp/NAME                         the hub's own
//	/orchestrate, /cancellation, /v1/…      the admin API
//	/protocol/notifications, /notifications, /rpc
//	/openapi.json
//	/metrics
//
// Everybody is authenticated by one [auth.Authenticator], which [Server.SetAuth]
// replaces while requests are served. Where nobody is configured, the callers of
// the MCP endpoints are "local", whatever they bring, and the admin API wants
// this user's own token or its socket (DESIGN 11, 10).
//
// A call is let in by a gate: the stop-all latch, and the cancels that came
// before their call (ORC-79). What ends is written down in the ledger; a receipt
// that a client waited for is on disk before it is answered (DESIGN 12).
//
// # Guarantees
//
//   - A process inside a run's tree that holds its user's token is told apart
//     from its user, over the unix socket and over loopback TCP (on Linux): it
//     may stop what it started, and nothing else. A connection over loopback
//     whose other end cannot be found any more counts as such a process.
//   - This user's own token is good over loopback and the unix socket only.
//   - An engaged latch is engaged after a restart, too. A latch file that cannot
//     be read keeps the server from starting: it may be engaged.
//   - A ledger that cannot be opened keeps the server from starting if somebody
//     asked for it; the default one is done without, loudly.
//   - Close ends everything in the order in which the one needs the other, and
//     waits for it.
package node
