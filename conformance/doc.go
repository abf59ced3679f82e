// Command conformance runs the official MCP conformance suite twice, against
// official peers directly and with Belay in between, and compares.
//
//	go run ./conformance [-only PART] [-update] [-keep DIR] [-v]
//
// # Method
//
// The yardstick is equality, not success: the peers are the official Go SDK's
// conformance server and client and the reference server, which do not pass
// everything themselves, and a gateway must change nothing of that. In each group the suite runs once
// without Belay and once with it, in the same minute on the same machine. The
// checks that it writes are compared one by one, by scenario, id and name:
// the same passes, failures, warnings and skips as often, and the same exit
// code. What the suite calls INFO (its log of requests and responses) is left
// out; so are texts and times.
//
//	server   suite -> [belay serve] -> server
//	client   suite as server <- [belay serve] <- everything-client
//
// The server is tested over HTTP in both eras, and over stdio behind Belay's
// HTTP. The suite cannot speak stdio, so that the direct side of those groups
// is the same server over HTTP: callers must not notice what Belay speaks
// behind itself. On the client side each client gets a Belay of its own; the
// scenarios of authorization go past Belay and are not counted, because their
// tokens are bound to the address of the suite's server.
//
// # What fails, and what does not
//
// A check that differs fails the run, and is printed with what the suite says
// about it; the few listed improvements are the exception, checks in which Belay
// does more for callers than the peer. So does a direct side that is not what
// the pinned versions are known to give: two runs that are equally broken prove
// nothing. When a registry cannot be reached, nothing is compared; that is said
// loudly, and is no failure.
package main
