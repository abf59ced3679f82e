// Package adopt puts the MCP servers and the agents of an editor's configuration
// file under Belay, and takes them out again.
//
// # The model
//
// A file is read into a [Plan]: for each server or agent what would be done and
// why ([Server]), and the text that would result. Nothing is written before
// [Plan.Commit].
//
// Which files exist, which objects in them hold servers or agents and which
// members of an entry mean what is data: editors.yaml, with a date and with comments that
// say what each field means; the user's own file is looked at before it (see
// [Load]). The objects are found by the form of the file's content, never by
// its name or by an editor's version (DESIGN 11, 13).
//
// A stdio entry
//
//	"command": "npx", "args": ["-y", "pkg"]
//
// becomes
//
//	"command": "/usr/local/bin/belay", "args": ["wrap", "--name", "files", "--", "npx", "-y", "pkg"]
//
// an agent, to which the editor speaks ACP, becomes
//
//	"command": "/usr/local/bin/belay", "args": ["acp", "--name", "mine", "--", "my-agent", "acp"]
//
// and a remote server, if that is asked for, becomes
//
//	"url": "http://127.0.0.1:7474/mcp/docs#https://mcp.example.com/mcp"
//
// The whole original is in the new entry: the command and its arguments behind
// the "--", the address behind the "#", which no client sends. So undoing
// needs no backup and no state, works entry by entry, and keeps what was
// edited since then. Texts move as they are written, escapes included. The one
// thing that is not visible in this form, whether there was an empty list of
// arguments or none at all, is told by how the name is given: two words
// ("--name", "files") for an entry that had a list, one ("--name=files") for
// one that had none. An entry without a name was written by a person and is
// left alone.
//
// Everything else in an entry (env, envFile, cwd, type, timeouts, lists of
// tools) stays untouched, and so do ${input:…} and other variables: editors
// fill them in wherever they stand. The command stays as it is written, too:
// Belay looks it up in the very PATH that the editor would have used.
//
// # Guarantees
//
//   - Only the spans that must change change; order, formatting, comments,
//     line ends and a byte order mark stay. Undoing gives back the bytes of
//     the original when nobody has edited the file in between.
//   - Adopting twice changes nothing the second time, also when another belay
//     did the first.
//   - A file changes as a whole or not at all: a temporary file beside it,
//     synced, with its mode and owner, renamed over the real file behind a
//     symbolic link. If the file has changed since it was read, a new plan is
//     made from what is there now.
//   - Files of a policy, of somebody else, that are read-only or tracked by
//     git are left alone unless forced (DESIGN 11, 12).
//   - Sizes and depths are bounded; what is not understood is an error with
//     file:line:column, or a reason to skip the entry, never a guess.
//
// Plans are for one goroutine; [Editors] is read-only after it was loaded.
package adopt
