package jsonrpc

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// This file says whether text is valid JSON (RFC 8259) and where its values
// lie. Every frame passes through it once in full, so it is what a large
// message costs: it looks at eight bytes at a time inside strings and never
// builds a token. FuzzValid holds its verdicts against two other parsers.

// fault is why text is not acceptable, and where. A zero why means that it is.
type fault struct {
	at   int
	why  string
	deep bool // nested too deep; the text before is valid
}

func (f fault) ok() bool { return f.why == "" }

// err is the fault as an error of Parse and SplitBatch.
func (f fault) err() error {
	switch {
	case f.ok():
		return nil
	case f.deep:
		return ErrDepth
	}
	return fmt.Errorf("%w: at byte %d: %s", ErrSyntax, f.at, f.why)
}

// What can be wrong.
const (
	whyEnd     = "the text ends too early"
	whyEmpty   = "it is empty"
	whyValue   = "no value begins like this"
	whyName    = "a member's name must be a string"
	whyColon   = "a colon must follow a member's name"
	whyNext    = "a comma or the closing bracket must follow"
	whyControl = "a control character in a string must be escaped"
	whyEscape  = "no such escape sequence"
	whyNumber  = "bad number"
	whyMore    = "more text after the end of the message"
	whyDeep    = "nested too deep"
)

// open remembers for each open container whether it is an object: one bit.
type open [(MaxDepth + 1 + 63) / 64]uint64

func (o *open) push(n int, object bool) {
	word, bit := &o[n/64], uint64(1)<<(n%64)
	if *word &^= bit; object {
		*word |= bit
	}
}

func (o *open) isObject(n int) bool { return o[n/64]&(1<<(n%64)) != 0 }

// checkValue checks the value that begins at b[i], which may nest at most limit
// (at most MaxDepth+1) deep, and returns the offset behind it.
func checkValue(b []byte, i, limit int) (int, fault) {
	var stack open
	depth := 0 // containers that are open
	for {
		// A value has to begin at i.
		if i >= len(b) {
			return i, fault{at: i, why: whyEnd}
		}
		c := b[i]
		switch {
		case c == '"':
			end, why := checkString(b, i)
			if why != "" {
				return end, fault{at: end, why: why}
			}
			i = end
		case c == '{' || c == '[':
			if depth == limit {
				return i, fault{at: i, why: whyDeep, deep: true}
			}
			stack.push(depth, c == '{')
			depth++
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == c+2 { // '}' is two behind '{', as ']' is behind '['
				break // the loop below closes it
			}
			if c == '{' {
				var f fault
				if i, f = checkName(b, i); !f.ok() {
					return i, f
				}
			}
			continue
		default:
			end, f := checkScalar(b, i)
			if !f.ok() {
				return end, f
			}
			i = end
		}
		// A value is over: close what ends here, then go on behind a comma.
		for {
			if depth == 0 {
				return i, fault{}
			}
			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			if i >= len(b) {
				return i, fault{at: i, why: whyEnd}
			}
			object := stack.isObject(depth - 1)
			if object && b[i] == '}' || !object && b[i] == ']' {
				depth--
				i++
				continue
			}
			if b[i] != ',' {
				return i, fault{at: i, why: whyNext}
			}
			i = skipSpace(b, i+1)
			if object {
				var f fault
				if i, f = checkName(b, i); !f.ok() {
					return i, f
				}
			}
			break
		}
	}
}

// checkName checks a member's name that begins at b[i], and its colon, and
// returns where its value has to begin.
func checkName(b []byte, i int) (int, fault) {
	_, next, f := checkKey(b, i)
	return next, f
}

// checkKey is checkName that also says where the name ends.
func checkKey(b []byte, i int) (end, next int, f fault) {
	switch {
	case i >= len(b):
		return i, i, fault{at: i, why: whyEnd}
	case b[i] != '"':
		return i, i, fault{at: i, why: whyName}
	}
	end, why := checkString(b, i)
	if why != "" {
		return end, end, fault{at: end, why: why}
	}
	next = end
	if next < len(b) && b[next] <= ' ' {
		next = skipSpace(b, next)
	}
	switch {
	case next >= len(b):
		return end, next, fault{at: next, why: whyEnd}
	case b[next] != ':':
		return end, next, fault{at: next, why: whyColon}
	}
	if next++; next < len(b) && b[next] <= ' ' {
		next = skipSpace(b, next)
	}
	return end, next, fault{}
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// special marks, by its high bit, the first of eight bytes that ends the plain
// part of a string: a quote, a backslash or a control character. Marks behind
// the first mean nothing: a subtraction borrows only from a byte that is marked
// itself. Bytes with the high bit set, parts of UTF-8, are never marked.
func special(x uint64) uint64 {
	control := x - eachByte*' '
	quote := x ^ eachByte*'"' - eachByte
	slash := x ^ eachByte*'\\' - eachByte
	return (control | quote | slash) &^ x & highBits
}

// checkString checks the string that opens at b[i] and returns the offset
// behind it. Invalid UTF-8 and lone surrogates are the receiver's business.
func checkString(b []byte, i int) (int, string) {
	for i++; ; {
		i = skipPlain(b, i)
		if i >= len(b) {
			return i, whyEnd
		}
		switch b[i] {
		case '"':
			return i + 1, ""
		case '\\':
		default:
			return i, whyControl
		}
		if i+1 >= len(b) {
			return i + 1, whyEnd
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(b) {
				return len(b), whyEnd
			}
			if _, ok := hex4(b[i+2:]); !ok {
				return i, whyEscape
			}
			i += 6
		default:
			return i, whyEscape
		}
	}
}

// skipPlain returns the offset of the first byte at or after i that is not a
// plain part of a string.
func skipPlain(b []byte, i int) int {
	for ; i+32 <= len(b); i += 32 {
		s := b[i : i+32 : i+32]
		w0 := special(binary.LittleEndian.Uint64(s))
		if w0 != 0 {
			return i + bits.TrailingZeros64(w0)/8
		}
		w1 := special(binary.LittleEndian.Uint64(s[8:]))
		w2 := special(binary.LittleEndian.Uint64(s[16:]))
		w3 := special(binary.LittleEndian.Uint64(s[24:]))
		switch {
		case w1|w2|w3 == 0:
		case w1 != 0:
			return i + 8 + bits.TrailingZeros64(w1)/8
		case w2 != 0:
			return i + 16 + bits.TrailingZeros64(w2)/8
		default:
			return i + 24 + bits.TrailingZeros64(w3)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// checkScalar checks a number or one of true, false and null.
func checkScalar(b []byte, i int) (int, fault) {
	switch c := b[i]; {
	case c == '-' || '0' <= c && c <= '9':
		return checkNumber(b, i)
	case c == 't':
		return checkWord(b, i, "true")
	case c == 'f':
		return checkWord(b, i, "false")
	case c == 'n':
		return checkWord(b, i, "null")
	}
	return i, fault{at: i, why: whyValue}
}

func checkWord(b []byte, i int, word string) (int, fault) {
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end, fault{}
	}
	return i, fault{at: i, why: whyValue}
}

func checkNumber(b []byte, i int) (int, fault) {
	if b[i] == '-' {
		i++
	}
	whole := skipDigits(b, i)
	if whole == i || b[i] == '0' && whole > i+1 {
		return i, fault{at: i, why: whyNumber}
	}
	i = whole
	if i < len(b) && b[i] == '.' {
		end := skipDigits(b, i+1)
		if end == i+1 {
			return end, fault{at: end, why: whyNumber}
		}
		i = end
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := skipDigits(b, i)
		if end == i {
			return end, fault{at: end, why: whyNumber}
		}
		i = end
	}
	return i, fault{}
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// checkEnd makes sure that nothing but white space follows.
func checkEnd(b []byte, i int) fault {
	if i = skipSpace(b, i); i < len(b) {
		return fault{at: i, why: whyMore}
	}
	return fault{}
}

// checkWhole checks that b is one value with nothing but white space around it.
func checkWhole(b []byte, limit int) fault {
	i := skipSpace(b, 0)
	if i == len(b) {
		return fault{at: i, why: whyEmpty}
	}
	i, f := checkValue(b, i, limit)
	if !f.ok() {
		return f
	}
	return checkEnd(b, i)
}

// CheckValue checks that text is one JSON value with nothing but white space
// around it, as it is needed where a value from elsewhere is put into a message.
// Errors match [ErrSyntax] or [ErrDepth].
func CheckValue(text []byte) error { return checkWhole(text, MaxDepth).err() }
