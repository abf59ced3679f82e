// Package acp is the Agent Client Protocol, as far as stopping needs to know it,
// and a library for authors of agents and of editors in which the end of a Go
// context really stops the other side's work.
//
// # The dialect
//
// A single request is cancelled by a notification, of which there are two [Form]
// values: the stabilised one ($/cancel_request with requestId) and the first one
// ($/cancelRequest with id). [ParseCancel] reads both, [AppendCancel] writes one,
// and [Forms] decides which, from what is known of the peer. [ReadHello] reads
// what a peer says of itself in initialize.
//
// # Guarantees
//
//   - A peer that declared that it does not handle cancels is never sent one, unless
//     the user said so; nobody is ever sent one before initialize was answered, and
//     initialize itself is never cancelled.
//   - A cancel is read in either form, whatever was declared. A malformed one is
//     reported as such and never as a cancel of something else.
//   - One cancel is one notification in one form.
package acp
