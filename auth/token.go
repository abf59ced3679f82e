package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"strings"
	"time"
)

// TokenPrefix begins every token that Belay makes, so that scanners of
// repositories and logs know one when they see it.
const TokenPrefix = "belay_"

// hashPrefix begins a token's hash in the configuration.
const hashPrefix = "sha256:"

// tokenBytes of a cryptographic source are in a token. With 256 bits nothing
// slower than one SHA-256 is needed to keep it: there is nothing to guess.
const tokenBytes = 32

// NewToken makes a static token. The text is shown to its owner once; the hash,
// "sha256:" and 64 hexadecimal digits, is what the configuration keeps.
func NewToken() (text, hash string) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	text = TokenPrefix + base64.RawURLEncoding.EncodeToString(b)
	return text, HashToken(text)
}

// HashToken is the form of a token that the configuration keeps.
func HashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// wellFormed reports whether text could have come from [NewToken].
func wellFormed(text string) bool {
	rest, ok := strings.CutPrefix(text, TokenPrefix)
	if !ok {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	return err == nil && len(b) == tokenBytes
}

// digest is the SHA-256 of a token. Go's == on it would tell by its time how
// many bytes agree; the function inside makes the compiler refuse ==, and its
// use as a map's key, which is the same. [digest.equal] is the only way.
type digest struct {
	_   [0]func()
	sum [sha256.Size]byte
}

func digestOf(text string) digest { return digest{sum: sha256.Sum256([]byte(text))} }

// equal takes the same time wherever they differ.
func (d *digest) equal(o *digest) bool { return subtle.ConstantTimeCompare(d.sum[:], o.sum[:]) == 1 }

// place is where a digest stands in a table. The seed is this process's own, so
// that nobody outside can aim at a place.
func (d *digest) place(seed maphash.Seed) uint64 { return maphash.Bytes(seed, d.sum[:]) }

// parseHash reads what HashToken wrote.
func parseHash(s string) (digest, error) {
	var d digest
	text, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(text) != hex.EncodedLen(len(d.sum)) {
		// The value is not shown: people put the token itself here.
		return d, fmt.Errorf("%w: a token is kept as %q and 64 hexadecimal digits, as belay token new prints it", ErrConfig, hashPrefix)
	}
	if _, err := hex.Decode(d.sum[:], []byte(text)); err != nil {
		return d, fmt.Errorf("%w: a token's hash has a character that is not a hexadecimal digit", ErrConfig)
	}
	return d, nil
}

// known is one static token.
type known struct {
	digest    digest
	principal Principal
}

// tokens are the static ones. It is never changed after it was made.
type tokens struct {
	seed  maphash.Seed
	table map[uint64][]known
}

func newTokens() *tokens { return &tokens{seed: maphash.MakeSeed(), table: map[uint64][]known{}} }

// add refuses a token that is there already: it would be two people's.
func (t *tokens) add(d digest, p Principal) error {
	at := d.place(t.seed)
	for i := range t.table[at] {
		if t.table[at][i].digest.equal(&d) {
			return fmt.Errorf("%w: %s and %s have the same token", ErrConfig, t.table[at][i].principal.Name, p.Name)
		}
	}
	t.table[at] = append(t.table[at], known{digest: d, principal: p})
	return nil
}

// find is whose token has this digest.
func (t *tokens) find(d *digest, now time.Time) (Principal, error) {
	list := t.table[d.place(t.seed)]
	for i := range list {
		if !list[i].digest.equal(d) {
			continue
		}
		p := list[i].principal
		if !p.Expires.IsZero() && !now.Before(p.Expires) {
			return Principal{}, fmt.Errorf("%w: a static token of %s", ErrExpired, p.Name)
		}
		return p, nil
	}
	return Principal{}, ErrUnknownToken
}
