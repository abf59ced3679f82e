package supervise

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// maxCommand bounds a command line in evidence, in bytes.
const maxCommand = 200

// hidden stands where a secret was.
const hidden = "[redacted]"

var (
	// What names of secrets contain. "key" only as a word: a --keyboard is none.
	secretName = pattern(`(?i)token|secret|passw|passphrase|pwd|credential|apikey|accesskey|auth|bearer|session|cookie|private|(?:^|[_.-])keys?(?:$|[_.-])`)
	// A flag or assignment with its value in the same word.
	pair = pattern(`^(-{0,2}[A-Za-z0-9_.-]+)([=:])(.+)$`)
	// A flag alone: if it names a secret, the next word is its value.
	flag = pattern(`^--?[A-Za-z0-9_.-]+$`)
	// A header that carries a secret; its value is the rest, or the next words.
	secretHeader = pattern(`(?i)^['"]?(authorization|proxy-authorization|cookie|x-api-key|x-auth-[a-z-]+)\s*[:=]`)
	// Well-known forms of tokens.
	secretToken = pattern(`(?:gh[pousr]_|github_pat_|glpat-|sk-|xox[abeprs]-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|pypi-|hf_|dop_v1_|shpat_|SG\.)[A-Za-z0-9_./+=-]{8,}`)
	// user:password@ in a URL, and secrets among its parameters.
	userinfo  = pattern(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@]+@`)
	parameter = pattern(`(?i)([?&;][a-z0-9_.-]*(?:token|secret|passw|pwd|key|auth|session|sig|code)[a-z0-9_.-]*=)[^&;\s]+`)
	// A long run of hexadecimal or base64 digits.
	opaque = pattern(`[A-Za-z0-9+_-]{32,}={0,2}`)
)

// pattern compiles an expression when it is first needed: most processes need
// none, and all eight would cost every start a third of a millisecond.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Redact makes a command line safe to show and to keep (DESIGN 11, 15): values
// that look like secrets are replaced, control characters removed, and it is
// cut to 200 bytes. When in doubt it hides: what a receipt needs is which
// program it was.
func Redact(command string) string {
	words := strings.Fields(printable(command))
	hide := 0 // words from here on that are the value of a flag before them
	for i, w := range words {
		switch {
		case hide > 0:
			hide--
			if strings.EqualFold(strings.Trim(w, `'"`), "bearer") || strings.EqualFold(w, "basic") {
				hide++ // the scheme; the secret is the next word
			}
			words[i] = hidden
		case secretHeader().MatchString(w):
			name := secretHeader().FindString(w)
			words[i] = name + hidden
			if len(name) == len(w) || strings.HasSuffix(strings.ToLower(w), "bearer") || strings.HasSuffix(strings.ToLower(w), "basic") {
				hide = 1
			}
		case secretPair(w):
			words[i] = pair().ReplaceAllString(w, "${1}${2}"+hidden)
		case i > 0 && flag().MatchString(w) && secretName().MatchString(w):
			hide = 1
		case i > 0:
			words[i] = redactWord(w)
		}
	}
	return cut(strings.Join(words, " "), maxCommand)
}

func secretPair(w string) bool {
	m := pair().FindStringSubmatch(w)
	return m != nil && secretName().MatchString(m[1])
}

func redactWord(w string) string {
	w = userinfo().ReplaceAllString(w, "${1}"+hidden+"@")
	w = parameter().ReplaceAllString(w, "${1}"+hidden)
	w = secretToken().ReplaceAllString(w, hidden)
	return opaque().ReplaceAllStringFunc(w, func(s string) string {
		if looksRandom(s) {
			return hidden
		}
		return s
	})
}

// looksRandom tells a key from a long name: hexadecimal digits only, or
// letters of both cases or none beside digits, without the words' separators.
func looksRandom(s string) bool {
	var digits, upper, lower, seps int
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r >= 'A' && r <= 'Z':
			upper++
		case r >= 'a' && r <= 'z':
			lower++
		case r == '-' || r == '_':
			seps++
		}
	}
	return digits >= 4 && seps <= len(s)/12 || upper >= 6 && lower >= 6 && seps <= len(s)/16
}

func printable(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			return ' '
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
