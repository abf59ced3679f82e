package ledger

import (
	"encoding/base64"
	"fmt"

	"github.com/belayhq/belay"
)

// A cursor is the last run of a page: the next page begins after it. Rows that
// are added or deleted meanwhile neither repeat nor hide others.
const cursorVersion = 1

var cursorText = base64.RawURLEncoding.Strict()

func cursorOf(id belay.RunID) string {
	return cursorText.EncodeToString(append([]byte{cursorVersion}, id[:]...))
}

// parseCursor accepts exactly what cursorOf writes.
func parseCursor(s string) (id belay.RunID, err error) {
	if len(s) != cursorText.EncodedLen(1+len(id)) {
		return id, fmt.Errorf("%w: %.64q", ErrBadCursor, s)
	}
	raw, err := cursorText.DecodeString(s)
	if err != nil || len(raw) != 1+len(id) || raw[0] != cursorVersion || belay.RunID(raw[1:]).IsZero() {
		return id, fmt.Errorf("%w: %.64q", ErrBadCursor, s)
	}
	return belay.RunID(raw[1:]), nil
}
