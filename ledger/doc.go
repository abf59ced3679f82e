// Package ledger remembers runs and receipts after the process that held them
// is gone.
//
// # The model
//
// A [Ledger] is one SQLite file. It follows one [belay.Control] by its events
// ([Ledger.Follow]) and writes down each run twice at most in the usual case:
// when it starts (the journal) and when it is over. A cancelled run has a
// receipt beside it. Everything else that happens to a run while it is in
// flight is the tree's business and is not stored.
//
// Writing is off the critical path. Whatever is to be written waits in a queue
// in which news about one run replace older news about it; one goroutine takes
// what has gathered, after [Options.Batch], and commits it as one
// transaction that is synced to disk. Who needs to know that something is on
// disk calls [Ledger.Commit], which returns after the sync; callers that come
// at the same time share one.
//
// Reading ([Reader.Get], [Reader.List], [Reader.Find], [Reader.Receipts]) has
// connections of its own, never waits for the writer and sees what is committed.
// A [Ledger] is a [Reader]; [OpenReader] makes one of a file that another process
// writes, or nobody. Lists are newest first and page by a [Query.Cursor] that
// stays valid while rows come and go. Every list that one person may ask for by
// the protocol's id, by the Stop, by owner or by label walks an index.
//
// # Guarantees
//
//   - A receipt for which Commit returned nil is in the file, whole, after any
//     crash of the process or of the machine (as far as the disk keeps what it
//     said it had synced). DESIGN 12: acknowledged receipt.
//   - A run that the file holds as in flight when it is opened is lost: its
//     process is gone. A caller that had not been answered has the outcome
//     lost; an outcome that had been given stays, the work is unconfirmed. One that
//     was being stopped gets a final receipt, which claims no more than was
//     written down.
//   - Append-only: an outcome changes once and receipts never do; triggers in the
//     file hold that. Further evidence adds a revision (at most [MaxRevisions],
//     then only a better verdict counts). Rows leave only by retention and
//     erasure. A second run with an id that is taken is refused (ORC-68).
//   - One process writes a file at a time, held by a lock; another gets
//     [ErrLocked]. The file is 0600, the directory it makes 0700; files and
//     directories of other users, symbolic links and directories that others
//     may write to are refused (on Windows the profile's own access list is
//     what protects it).
//   - A damaged file is refused with [ErrDamaged], and the message says how to
//     move it aside. Nothing is ever deleted or started anew instead. Files up to
//     64 MiB are checked whole at [Open], larger ones by [Ledger.Check].
//   - A reader that stands alone makes and changes no file, sees each receipt
//     from the moment Commit returned, and keeps a writer neither from opening
//     the file nor from writing. It calls no run lost: that is for the next writer.
//   - The queue is bounded by [Options.Queue]. When it is full, news about further
//     runs are dropped and counted ([Stats.Dropped]), and so are events which the
//     tree could not hand over in time ([Stats.Missed]). Afterwards the ledger
//     asks the tree for what it still remembers, so that only runs are missing
//     that the tree has forgotten meanwhile; those it had journalled become lost,
//     with a note. Commit is not refused for a full queue: its caller waits.
//   - When the disk is full or fails, Belay goes on: what cannot be written is
//     kept as far as the queue goes and tried again, Commit returns
//     [ErrNotStored] at once, and the log says so once, and once when it is over.
//   - Retention (age, also of single principals, count, bytes) deletes and gives space back to the file
//     system in steps of at most 500 runs and 2,000 pages, between which
//     others' records are written.
//   - Erasure of a principal removes its runs and receipts and its name from
//     receipts of Stops that it pressed on others' runs, and writes the file
//     anew, so that no deleted byte is left in it. What the tree still says about runs that started
//     before the erasure is not written down again.
//   - Partial results and the command lines of survivors are stored only when
//     [Options.Partials] and [Options.Commands] say so (DESIGN 11, 15).
//     Arguments of calls are no part of a run, so none reach the file.
//
// # What it does not promise
//
// A run that started, or ended, less than [Options.Batch] and a sync before a
// SIGKILL may be missing, or be lost although it had ended, unless somebody
// committed it. The file belongs on a local disk: SQLite's log needs shared memory.
//
// This is the only package that imports SQLite.
package ledger
