package script

import (
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dop251/goja"
	"github.com/nlnwa/whatwg-url/url"
)

//go:embed web.js
var webText string

// webProgram is compiled once for all virtual machines.
var webProgram = sync.OnceValues(func() (*goja.Program, error) {
	return goja.Compile("belay-web", webText, true)
})

// web puts the web's globals into the virtual machine (AT-75 to AT-77) and returns
// them for the module "scripting".
func (c *Call) web() (goja.Value, error) {
	code, err := webProgram()
	if err != nil {
		return nil, err
	}
	made, err := c.vm.RunProgram(code)
	if err != nil {
		return nil, err
	}
	setUp, _ := goja.AssertFunction(made)
	h := c.vm.NewObject()
	for name, v := range map[string]any{
		"timer":    c.timer,
		"encode":   func(s string) goja.ArrayBuffer { return c.vm.NewArrayBuffer([]byte(s)) },
		"decode":   c.decode,
		"whole":    func(b goja.ArrayBuffer) int { return whole(b.Bytes()) },
		"base64":   func(b goja.ArrayBuffer) string { return base64.StdEncoding.EncodeToString(b.Bytes()) },
		"unbase64": c.unbase64,
		"hex":      func(b goja.ArrayBuffer) string { return hex.EncodeToString(b.Bytes()) },
		"unhex":    c.unhex,
		"random":   rand.Text,
		"url":      c.parseURL,
		"setURL":   c.setURL,
		"query":    parseQuery,
		"unquery":  writeQuery,
		"fetch":    c.fetch,
		"read":     c.net.read,
		"abort":    c.net.abort,
	} {
		if err := h.Set(name, v); err != nil {
			return nil, err
		}
	}
	return setUp(goja.Undefined(), h)
}

// decode turns UTF-8 into a string; what is no UTF-8 becomes U+FFFD, or with fatal
// nothing at all.
func (c *Call) decode(b goja.ArrayBuffer, fatal bool) goja.Value {
	if fatal && !utf8.Valid(b.Bytes()) {
		return goja.Undefined()
	}
	return c.vm.ToValue(strings.ToValidUTF8(string(b.Bytes()), "\uFFFD"))
}

// whole is how many of the bytes do not end in the middle of a character.
func whole(b []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(b)); back++ {
		if at := len(b) - back; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return at
			}
			break
		}
	}
	return len(b)
}

func (c *Call) unbase64(s string) goja.Value {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n\f", r) {
			return -1
		}
		return r
	}, s)
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return goja.Undefined()
	}
	return c.vm.ToValue(c.vm.NewArrayBuffer(b))
}

func (c *Call) unhex(s string) goja.Value {
	b, err := hex.DecodeString(s)
	if err != nil {
		return goja.Undefined()
	}
	return c.vm.ToValue(c.vm.NewArrayBuffer(b))
}

// parseURL reads an address, against a base if there is one.
func (c *Call) parseURL(address, base string) goja.Value {
	var u *url.Url
	var err error
	if base == "" {
		u, err = url.Parse(address)
	} else {
		u, err = url.ParseRef(base, address)
	}
	if err != nil {
		return goja.Undefined()
	}
	return c.vm.ToValue(partsOf(u))
}

// setURL changes one part of an address.
func (c *Call) setURL(href, part, value string) goja.Value {
	if part == "href" {
		return c.parseURL(value, "")
	}
	u, err := url.Parse(href)
	if err != nil {
		return goja.Undefined()
	}
	switch part {
	case "protocol":
		u.SetProtocol(value)
	case "username":
		u.SetUsername(value)
	case "password":
		u.SetPassword(value)
	case "host":
		u.SetHost(value)
	case "hostname":
		u.SetHostname(value)
	case "port":
		u.SetPort(value)
	case "pathname":
		u.SetPathname(value)
	case "search":
		u.SetSearch(value)
	case "hash":
		u.SetHash(value)
	}
	return c.vm.ToValue(partsOf(u))
}

// partsOf is an address as the URL class keeps it.
func partsOf(u *url.Url) string {
	origin := "null"
	if u.IsSpecialScheme() && u.Scheme() != "file" {
		origin = u.Protocol() + "//" + u.Host()
	}
	text, err := json.Marshal(map[string]string{
		"href": u.Href(false), "origin": origin, "protocol": u.Protocol(), "username": u.Username(), "password": u.Password(),
		"host": u.Host(), "hostname": u.Hostname(), "port": u.Port(), "pathname": u.Pathname(), "search": u.Search(), "hash": u.Hash(),
	})
	if err != nil {
		return "{}"
	}
	return string(text)
}

// parseQuery and writeQuery are application/x-www-form-urlencoded, as JSON pairs.
func parseQuery(text string) string {
	pairs := [][2]string{}
	for piece := range strings.SplitSeq(text, "&") {
		if piece == "" {
			continue
		}
		name, value, _ := strings.Cut(piece, "=")
		pairs = append(pairs, [2]string{unescape(name), unescape(value)})
	}
	out, err := json.Marshal(pairs)
	if err != nil {
		return "[]"
	}
	return string(out)
}

// unescape decodes what it can and keeps the rest, as browsers do.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b.WriteByte(' ')
		case s[i] == '%' && i+2 < len(s):
			if one, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.Write(one)
				i += 2
				continue
			}
			b.WriteByte('%')
		default:
			b.WriteByte(s[i])
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func writeQuery(pairs string) string {
	var list [][2]string
	if json.Unmarshal([]byte(pairs), &list) != nil {
		return ""
	}
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteByte('&')
		}
		escape(&b, p[0])
		b.WriteByte('=')
		escape(&b, p[1])
	}
	return b.String()
}

func escape(b *strings.Builder, s string) {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		switch x := s[i]; {
		case x == ' ':
			b.WriteByte('+')
		case 'a' <= x && x <= 'z', 'A' <= x && x <= 'Z', '0' <= x && x <= '9', strings.IndexByte("*-._", x) >= 0:
			b.WriteByte(x)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[x>>4])
			b.WriteByte(digits[x&15])
		}
	}
}
