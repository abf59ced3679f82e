// Package rappeer is the other end of the Reactive Agent Protocol for tests: a
// tool server and a runtime that were written from the protocol's page alone, with
// net/http and encoding/json, and that know nothing of Belay. They do what the page
// says, write down everything they get, and have bad manners where a test asks for
// them: they hang, refuse, answer 500, repeat themselves, and come too late.
package rappeer
