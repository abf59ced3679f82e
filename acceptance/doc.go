// Package acceptance holds no code, only tests: the acceptance list of the
// Orchestrate requirement sheet, the table of bad input, and what issue by issue
// was promised about crashes and attackers, against the program as it is
// shipped.
//
// # How it works
//
// TestMain builds belay, with the race detector if the tests have it. Each test
// starts that program with a configuration of its own, or shares one that others
// use too, and speaks to it over real connections: REST by net/http, MCP by the
// official SDK where a client's behaviour counts and by hand where the bytes or
// the ids do. The tools behind it are package faketool's, which write down what
// they do: a call has stopped when its witness file has stopped growing and not
// when somebody says so.
//
// A test is named after its number in the list (TestAcceptance28LiveCallStops)
// and names the requirements that it proves. A few numbers are about what cannot
// be brought about from outside, such as a list of sessions that cannot be read;
// those tests put the same handler behind a server of their own.
//
// Left out are the peers' half of number 2, 8 to 11 and 37, which need a cluster.
package acceptance
