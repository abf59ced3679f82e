// Package cli is the command line of Belay: it parses arguments, wires the
// other packages together and turns what happened into words and an exit code.
//
// # The model
//
// [Main] is the whole program but for the process it runs in: arguments, the
// environment and the three streams go in, an exit code comes out. Scripted
// tests run the same Main as the binary does.
//
// Each command is a struct whose fields are its flags and whose Run method
// does the work with an [Env] and nothing else of the world. commands.go is
// the list of them. Run returns an error; exit.go is the one table that turns
// errors into exit codes.
//
// # Guarantees
//
//   - Standard output carries what was asked for, and only that; progress,
//     warnings and errors go to standard error, each as one line that begins
//     with "belay: ".
//   - A wrong flag, a missing command or a bad value is one clear line and
//     exit code 2, and nothing has been done.
//   - The commands that list and stop runs talk to a [belay.Control]; they
//     never reach around it. Without a word about a server it is that of this
//     user's own processes, with one it is that server's; the words, the shapes
//     and the exit codes are the same.
//   - A token goes to the server it was given for and is never printed; this
//     user's own goes to this machine alone.
//   - Colour and cursor movement only on a terminal, and no colour when
//     NO_COLOR is set; text of other programs is shown without its control
//     characters.
//   - The shapes printed by --json are the JSON forms of package belay: a
//     field is added, never renamed.
package cli
