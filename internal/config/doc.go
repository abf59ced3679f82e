// Package config reads what `belay serve` is to serve: Belay's own file,
// belay.yaml, and the files in which editors keep their MCP servers, as they
// are.
//
// # The model
//
// Both forms become the same list of [Server] values, in the order of the
// files, each with a complete [Policy]: whatever a server does not say comes
// from the next of
//
//	tool  >  server  >  defaults: in belay.yaml  >  the command line's flags  >  the built-in default
//
// An editor's file says nothing of policies, so its servers have those of
// defaults: and below. Labels and spare rules add up; everything else is taken
// from the nearest place that says it.
//
// belay.yaml is ours and read strictly: an unknown key, a wrong type or a value
// that cannot be is a [Problem] with file, line, column, the source line and the
// nearest known key, and all problems of a file are reported together. An
// editor's file is somebody else's: keys that Belay does not know are left
// alone, comments and trailing commas are read over, and a server that only the
// editor can start is left out with a note.
//
// Beside the servers stand the [Settings]: how connections are encrypted, who
// there is, what is kept of ended runs, and what is switched off. They are
// complete, and are in force from the start to the end of the process, [Auth]
// excepted: see [Config.Restart] and [Auth.Equal].
//
// The structs in schema.go, settings.go and access.go are the reference: their
// tags hold each key, its default and what it accepts; docs/configuration.md is
// held to them by a test.
//
// # Guarantees
//
//   - A file with a problem yields no configuration at all, so that a reload
//     cannot apply half of one.
//   - Neither problems nor notes contain a value of env, headers, args, a hash, a
//     secret, a hook's body or an expanded variable; the source line is shown only
//     as far as it holds keys and values of other settings.
//   - What Load returns was accepted by package auth, and an address of belay.yaml
//     that other machines can reach comes with somebody who is let in (DESIGN
//     section 8).
//   - Files are bounded (1 MiB), and so is what aliases make of them.
//   - What Load returns belongs to the caller; nothing here keeps state.
package config
