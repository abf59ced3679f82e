// Package jsonrpc moves JSON-RPC 2.0 messages as raw bytes. It reads the
// envelope of a message, rewrites single values inside it, frames messages as
// lines, and keeps tables of what is in flight. It never decodes a payload and
// knows no protocol above JSON-RPC.
//
// # The model
//
// A frame is one message as it came from the wire: a []byte holding one JSON
// object, without its newline. [Parse] validates the whole frame and fills an
// [Envelope]: the message's [Kind], its [ID], its method, and [Span] values that
// say where id, params, result and error lie in the frame. Everything after
// that works on spans: [Lookup], [Member], [Path] and [Members] walk an object
// one level deep, [AppendSplice] copies a frame once while it replaces some
// spans. What nobody named in an edit is copied byte for byte, so number
// literals, key order, white space and unknown members survive (MCP-G2).
//
// # Ids
//
// An [ID] keeps the exact JSON text of an id: 1, "1", 1.0, 1e0, null, 0 and "0"
// are all different, and 1152921504606846976 is never rounded. The zero ID
// means that there was no id member at all, which is not the same as null. An
// answer echoes [ID.Raw]; tables look up [ID.Key], under which two spellings of
// one string ("a" and "\u0061") meet (MCP-G7). [Minter] makes ids of our own:
// strings, never numbers, never reused (MCP-G6).
//
// # Lines
//
// [Reader] cuts a stream into lines of bounded length. A line that is too long
// costs that line only: the reader throws the rest away, reports a
// [TooLongError], and goes on; [Salvage] finds in its two ends which call it
// belonged to (MCP-G3). [Writer] owns the one goroutine that writes to a pipe.
// Senders never wait for the pipe. A frame that is still queued can be withdrawn,
// and an urgent frame overtakes what is queued, but never the frame that it
// refers to and never the middle of a line (MCP-G16, MCP-G19).
//
// # Events
//
// [AppendEvent] and [EventReader] are the framing of HTTP streams: server-sent
// events, one message each, with the bound and the salvage of lines (MCP-33,
// MCP-34).
//
// # Guarantees
//
//   - No input makes this package panic, and no input makes it hold more memory
//     than the bounds say: line length, queue length, id length, nesting depth,
//     batch length and table size all have one.
//   - A frame that Parse accepts is valid JSON in full, is an object, and has each
//     envelope member at most once, also when a name is spelled with escapes or in
//     another letter case: parsers differ in which duplicate they take, so a
//     duplicate would be a way around whoever checks.
//   - Invalid UTF-8 and duplicate names inside payloads are the receiver's
//     business and pass through unchanged. An id is never invalid UTF-8.
//   - Spans and frames alias the caller's buffer; an [ID] and an
//     [Envelope]'s Method do not and may be kept.
//   - A pass from Reader to Writer copies a frame once.
//
// The section numbers MCP-G2 and so on in comments name requirements of the
// project's MCP requirement sheet.
package jsonrpc
