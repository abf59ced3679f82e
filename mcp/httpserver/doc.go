// Package httpserver is the transport towards callers over HTTP, in every
// revision of the protocol.
package httpserver
