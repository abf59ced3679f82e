// Package script hosts AssistantTool projects: a folder with assistant_tool.json,
// which says what the tool is, and assistant_tool.tsx (or .ts, .jsx, .js), which
// says what it does.
//
// # The model
//
//	Load   → a Tool: the manifest and the compiled program, read once
//	Tool   → many Calls, each with a virtual machine, an event loop, state,
//	         reports and a cancellation of its own
//	Call   → exactly one Result
//
// A Call runs its script on one goroutine, and nothing else touches the virtual
// machine. What comes from outside (a timer, an answer from the network, a Stop)
// becomes a job of the call's loop. The two exceptions are what a busy script
// must see or feel: the flag behind AssistantTool.isCancelled, which is atomic,
// and the interrupt.
//
// # A Stop (AT-28 to AT-35)
//
//  1. the flag: isCancelled reads true from the next instruction on
//  2. onCancel, as the loop's next job; its string is the partial result
//  3. the end of the grace: the host's own fetches are aborted, its timers
//     dropped, and a script that has not yielded is interrupted; if its onCancel
//     has not run, it runs then
//  4. later: the virtual machine is interrupted wherever it is
//
// What the script returns or throws after 1 is dropped. An interrupt acts between
// two instructions of the virtual machine; a builtin that runs on (a backtracking
// regular expression) is for whoever owns the process: this package says so
// by not returning.
//
// # The editor (AT-44, AT-81)
//
// A tool with scriptEditorOnly gets an [Editor]: one folder that was granted, and
// nothing above it or behind a link. Writing is a grant of its own, and possible while
// the tool runs until the grace after a Stop is over: not for the approval request,
// not in onCancel, not after a decline. A file is replaced as a whole, so that it is
// the old one or the new one when a worker is killed; workers with the same folder
// wait for each other.
package script
