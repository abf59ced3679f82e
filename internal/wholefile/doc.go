// Package wholefile replaces files so that a reader, and a machine that crashes,
// finds the old text or the new one and never a part of either.
//
// # The model
//
// A [File] is written beside the file that it is to replace, under a name of its
// own and with mode 0600. [File.Commit] makes its text durable, renames it over
// the other, and makes the rename durable; before that nothing is changed, and
// [File.Discard] leaves no trace. [Write] is all of it for a text at hand.
//
// What stands at the path is replaced, a symbolic link itself and not what it
// leads to; the mode and the owner of what was there are not taken over. Who
// needs that, or has to look once more before it happens, does so between
// [Create] and the rename.
//
// Two writers do not disturb each other: the later rename wins as a whole. A File
// is for one goroutine.
package wholefile
