package jsonrpc

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file holds the byte-level scanners. They are only ever right about text
// that is valid JSON, which Parse has made sure of; on anything else they stop
// at some offset inside the slice, so that garbage can give a wrong span but
// neither a panic nor an endless loop.

func hasEscape(s string) bool { return strings.IndexByte(s, '\\') >= 0 }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// skipSpace returns the offset of the first byte at or after i that is no JSON
// white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// skipString returns the offset behind the string that opens at b[i], and false
// when it does not end in b.
func skipString(b []byte, i int) (int, bool) {
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b), false
		}
		end := i + n
		// The quote is part of the string if an odd number of backslashes
		// stands before it. Looking back no further than i is right because b[i-1]
		// is either the opening quote or an escaped one.
		k := end
		for k > i && b[k-1] == '\\' {
			k--
		}
		if i = end + 1; (end-k)%2 == 0 {
			return i, true
		}
	}
}

// Classes of bytes that skipContainer must look at.
const (
	byteQuote = 1 + iota
	byteOpen
	byteClose
)

var structural = [256]uint8{'"': byteQuote, '{': byteOpen, '[': byteOpen, '}': byteClose, ']': byteClose}

// skipContainer returns the offset behind the object or array that opens at
// b[i], and false when it does not end in b.
func skipContainer(b []byte, i int) (int, bool) {
	depth := 0
	for i < len(b) {
		switch structural[b[i]] {
		case byteQuote:
			end, ok := skipString(b, i)
			if !ok {
				return len(b), false
			}
			i = end
			continue
		case byteOpen:
			depth++
		case byteClose:
			if depth--; depth <= 0 {
				return i + 1, true
			}
		}
		i++
	}
	return len(b), false
}

// skipValue returns the offset behind the value that starts at b[i], and false
// when b ends before it is known to be whole: a number or literal is whole only
// when something follows it.
func skipValue(b []byte, i int) (int, bool) {
	if i >= len(b) {
		return i, false
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipContainer(b, i)
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n', ':', '"', '{', '[':
			return i, true
		}
		i++
	}
	return i, false
}

// appendUnescaped appends the text of a JSON string, given without its quotes.
// It loses nothing: a lone surrogate, which UTF-8 cannot hold, becomes the three
// bytes that its code point would have, so that two different strings never
// become one. Bytes that are no UTF-8 stay as they are.
func appendUnescaped(dst, s []byte) []byte {
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 || n+1 >= len(s) {
			return append(dst, s...)
		}
		dst = append(dst, s[:n]...)
		c := s[n+1]
		s = s[n+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			var used int
			dst, used = appendHexEscape(dst, s)
			s = s[used:]
		default: // quote, backslash, slash
			dst = append(dst, c)
		}
	}
}

// appendHexEscape appends the character of the escape whose text behind "\u" is
// s, joined with a second escape if the two are a surrogate pair. It returns how
// much of s it used.
func appendHexEscape(dst, s []byte) ([]byte, int) {
	r, ok := hex4(s)
	if !ok {
		return append(dst, 'u'), 0
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), 4
	}
	if len(s) >= 10 && s[4] == '\\' && s[5] == 'u' {
		if low, ok := hex4(s[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return utf8.AppendRune(dst, pair), 10
			}
		}
	}
	return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F), 4
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
