package belay

import (
	"encoding/json"
	"hash/maphash"
	"strings"
)

// sign says in 64 bits what a run cannot be: one whose sign does not fit a
// [want] does not match, without a look at the run. What a sign is made of
// never changes after registration. The low bits are a print of the protocol's
// id; the others are a small Bloom filter of kind, server, owner and labels.
type sign uint64

const (
	printBits = 20
	printMask = 1<<printBits - 1
	bloomBits = 64 - printBits
)

// want is what the sign of a run that matches has. The zero want fits all.
type want struct{ mask, bits sign }

func (w want) fits(s sign) bool { return s&w.mask == w.bits }

// The salts keep an owner apart from a server of the same name.
const (
	saltKind   = 0x9e3779b97f4a7c15
	saltServer = 0xc2b2ae3d27d4eb4f
	saltOwner  = 0x165667b19e3779f9
	saltLabel  = 0x27d4eb2f165667c5
)

var seed = maphash.MakeSeed()

func signOf(s *Spec) sign {
	b := bloom(saltKind, string(s.Kind))
	if s.Server != "" {
		b |= bloom(saltServer, s.Server)
	}
	if s.Owner != "" {
		b |= bloom(saltOwner, s.Owner)
	}
	for k, v := range s.Labels {
		b |= bloomLabel(k, v)
	}
	if text, ok := requestText(s.Address); ok {
		b |= printOf(text)
	}
	return b
}

func printOf(text string) sign { return sign(maphash.String(seed, text)) & printMask }

func bloom(salt uint64, s string) sign { return spread((maphash.String(seed, s) ^ salt) * salt) }

func bloomLabel(k, v string) sign {
	return spread((maphash.String(seed, k)*saltOwner + maphash.String(seed, v)) * saltLabel)
}

// spread is two of the Bloom filter's bits.
func spread(h uint64) sign {
	return 1<<(printBits+(h>>32)*bloomBits>>32) | 1<<(printBits+(h&0xffffffff)*bloomBits>>32)
}

// want is what the runs that pass the filter have in their sign.
func (f *Filter) want() want {
	var b sign
	if len(f.Kinds) == 1 {
		b |= bloom(saltKind, string(f.Kinds[0]))
	}
	if f.Server != "" {
		b |= bloom(saltServer, f.Server)
	}
	if f.Owner != "" {
		b |= bloom(saltOwner, f.Owner)
	}
	for k, v := range f.Labels {
		b |= bloomLabel(k, v)
	}
	return want{b, b}
}

// request adds the text of the protocol's id.
func (w want) request(text string) want {
	return want{w.mask | printMask, w.bits | printOf(text)}
}

// requestText is the text by which a protocol's id is named (ORC-70): the value
// of a JSON string, anything else as it is written, so that "7" names the number
// and the string. It is false without an id.
func requestText(raw string) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return raw, raw != ""
	}
	if inner := raw[1 : len(raw)-1]; raw[len(raw)-1] == '"' && !strings.ContainsAny(inner, `"\`) {
		return inner, true // nearly always: nothing to decode
	}
	var s string
	if json.Unmarshal([]byte(raw), &s) != nil {
		return raw, true // a protocol whose ids are plain text
	}
	return s, true
}
