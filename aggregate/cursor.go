package aggregate

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
)

// place is where the list of one member goes on.
type place struct {
	server string
	cursor []byte // the member's own, as JSON text
}

// Bounds of a cursor.
const (
	maxCursor  = 8 << 10   // of one member, as JSON text
	maxCursors = 128 << 10 // of all together, encoded
)

// cursorMark begins every cursor: one of another kind is no cursor of ours.
const cursorMark = "belay1:"

var errCursor = errors.New("the cursor is none that was given out here")

// appendCursor appends the cursor of a merged list, as text that needs no
// escapes in JSON. It says where each list goes on; lists that are complete are
// not in it.
func appendCursor(dst []byte, places []place) []byte {
	var plain []byte
	for _, p := range places {
		plain = binary.AppendUvarint(plain, uint64(len(p.server)))
		plain = append(plain, p.server...)
		plain = binary.AppendUvarint(plain, uint64(len(p.cursor)))
		plain = append(plain, p.cursor...)
	}
	dst = append(dst, cursorMark...)
	return base64.RawURLEncoding.AppendEncode(dst, plain)
}

// readCursor reads a cursor that a caller sent. What it names is not checked:
// neither that the members exist nor that they gave out these cursors.
func readCursor(text string) ([]place, error) {
	if len(text) < len(cursorMark) || text[:len(cursorMark)] != cursorMark || len(text) > maxCursors {
		return nil, errCursor
	}
	plain, err := base64.RawURLEncoding.Strict().DecodeString(text[len(cursorMark):])
	if err != nil || len(plain) == 0 {
		return nil, errCursor
	}
	var places []place
	for len(plain) > 0 {
		server, rest, ok := chunk(plain)
		if !ok || len(server) == 0 || len(places) >= maxMembers {
			return nil, errCursor
		}
		cursor, rest, ok := chunk(rest)
		if !ok || !isCursor(cursor) {
			return nil, errCursor
		}
		places = append(places, place{string(server), cursor})
		plain = rest
	}
	return places, nil
}

// isCursor reports whether text can stand for one member's cursor in a message:
// a string, as it should be, or a number.
func isCursor(text []byte) bool {
	if len(text) == 0 || len(text) > maxCursor || !json.Valid(text) {
		return false
	}
	return text[0] == '"' || text[0] == '-' || text[0] >= '0' && text[0] <= '9'
}

// chunk is a length and as many bytes.
func chunk(b []byte) (head, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}
