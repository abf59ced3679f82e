// Package lint looks for the mistakes of a scripted tool that can be seen without
// calling it: in the manifest, in what the compiler and the script's top level say,
// and in how the script uses AssistantTool.
//
// # The model
//
// A project is loaded as a worker loads it (package script); what refuses it there
// is an error here, with its file and line. Then the compiled bundle is read again as
// a tree. What the execute functions mention, directly or by way of the names of
// other functions and members, counts as run by them; names are matched without
// regard to scope, so that more may count as run than is, never less. A rule speaks
// only of what is not run by them in this generous sense. Places are those of the
// author's files, by the compiler's source map.
//
// # Levels
//
// An error keeps the tool from working, or from being stopped as its author meant
// it. A warning is about what does not exist here, should the script come to it. A
// note is advice.
//
// Loading runs the script's top level. Whoever checks code that nobody has looked at
// does so in a process that may die.
package lint
