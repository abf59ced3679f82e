package jsonrpc

import (
	"bytes"
	"maps"
	"sync"
	"sync/atomic"
)

// A connection uses a few dozen methods again and again. The cache saves the
// allocation of their names without knowing them beforehand. It is only ever
// added to, up to its bounds; what a hostile peer puts in costs others a small
// allocation each, nothing more.
const (
	internMax    = 128
	internMaxLen = 64
)

var (
	interned   atomic.Pointer[map[string]string] // replaced, never changed
	internLock sync.Mutex                        // held while replacing it
)

// intern returns the decoded text of a JSON string given without its quotes.
func intern(text []byte) string {
	if bytes.IndexByte(text, '\\') >= 0 {
		text = appendUnescaped(make([]byte, 0, len(text)), text)
	}
	known := interned.Load()
	if known != nil {
		if s, ok := (*known)[string(text)]; ok {
			return s
		}
	}
	s := string(text)
	if len(s) > internMaxLen || known != nil && len(*known) >= internMax {
		return s
	}
	internLock.Lock()
	defer internLock.Unlock()
	next := make(map[string]string, internMax)
	if known = interned.Load(); known != nil {
		maps.Copy(next, *known)
	}
	if len(next) < internMax {
		next[s] = s
		interned.Store(&next)
	}
	return s
}
