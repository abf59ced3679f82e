package rap

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// A callback URL is the only credential of a tool server towards the runtime
// (RAP-39): its last segment is 256 random bits. The runtime keeps the digest
// alone, so that neither its memory nor its store gives a token away, and no
// comparison takes longer the more of it is right.

// tokenKey is the digest of a token.
type tokenKey [sha256.Size]byte

// tokenBytes is how many random bytes a token has, tokenLen its length in a URL.
const (
	tokenBytes = 32
	tokenLen   = 43
)

// newToken mints a token.
func newToken() (string, tokenKey) {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	text := base64.RawURLEncoding.EncodeToString(b[:])
	return text, sha256.Sum256([]byte(text))
}

// keyOf is the digest of what came in a URL; false if that cannot be a token.
func keyOf(text string) (tokenKey, bool) {
	if len(text) != tokenLen {
		return tokenKey{}, false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return tokenKey{}, false
		}
	}
	return sha256.Sum256([]byte(text)), true
}
