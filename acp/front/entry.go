package front

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
)

// entry is one element of mcpServers. Spans are places in the array's text.
type entry struct {
	at   jsonrpc.Span
	name string
	kind kind

	// Of a command.
	command, args, env jsonrpc.Span // args and env: zero if absent
	argv               []string     // the command and its arguments
	envs               []variable

	// Of a server that is reached by HTTP.
	url, headers jsonrpc.Span // headers: zero if absent
	address      string
	header       map[string]string
}

type kind string

const (
	stdio kind = "stdio" // v1 has no type for it (ACP-75)
	web   kind = "http"
	sse   kind = "sse" // v1 only
)

// variable is one element of env.
type variable struct {
	name string
	at   jsonrpc.Span
}

// Bounds of what is read of an entry. What is over them passes as it is.
const (
	maxText  = 128 << 10 // bytes of one text, as an operating system takes one
	maxParts = 4096      // arguments, variables or headers
)

// Why entries pass as they are.
var (
	errMalformed = errors.New("malformed")
	errOAuth     = errors.New("oauth")
	errURL       = errors.New("its URL cannot be used")
)

var entryKeys = []string{"name", "type", "command", "args", "env", "url", "headers"}

// readEntry reads one entry. An error says why it passes as it is; what could be
// read of its name is in the entry even so.
func readEntry(frame []byte, at jsonrpc.Span) (e entry, err error) {
	e.at = at
	var found [7]jsonrpc.Span
	twice := jsonrpc.Lookup(frame, at, entryKeys, found[:])
	e.name, err = jsonrpc.ReadString(frame, found[0], maxText)
	if err != nil || twice != nil || strings.ContainsRune(e.name, 0) {
		return e, errMalformed
	}
	e.kind = stdio
	if found[1].Ok() {
		text, err := jsonrpc.ReadString(frame, found[1], maxText)
		if err != nil {
			return e, errMalformed
		}
		e.kind = kind(text)
	}
	switch e.kind {
	case stdio:
		e.command, e.args, e.env = found[2], found[3], found[4]
		return e, e.readCommand(frame)
	case web, sse:
		e.url, e.headers = found[5], found[6]
		return e, e.readWeb(frame)
	}
	return e, errors.New("type " + clip(string(e.kind)))
}

func clip(text string) string {
	const most = 64
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func (e *entry) readCommand(frame []byte) error {
	command, ok := readText(frame, e.command)
	if !ok || command == "" {
		return errMalformed
	}
	e.argv = []string{command}
	if !isArray(frame, e.args) || !isArray(frame, e.env) {
		return errMalformed
	}
	for at := range jsonrpc.Elements(frame, e.args) {
		arg, ok := readText(frame, at)
		if !ok || len(e.argv) > maxParts {
			return errMalformed
		}
		e.argv = append(e.argv, arg)
	}
	for at := range jsonrpc.Elements(frame, e.env) {
		name, _, ok := readPair(frame, at)
		if !ok || len(e.envs) == maxParts {
			return errMalformed
		}
		e.envs = append(e.envs, variable{name, at})
	}
	return nil
}

func (e *entry) readWeb(frame []byte) error {
	var ok bool
	if e.address, ok = readText(frame, e.url); !ok || !isArray(frame, e.headers) {
		return errMalformed
	}
	e.header = make(map[string]string)
	for at := range jsonrpc.Elements(frame, e.headers) {
		name, value, ok := readPair(frame, at)
		if !ok || len(e.header) == maxParts || !validHeader(name, value) {
			return errMalformed
		}
		name = http.CanonicalHeaderKey(name)
		if before, twice := e.header[name]; twice {
			value = before + ", " + value // which means the same
		}
		e.header[name] = value
	}
	u, err := url.Parse(e.address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errURL
	}
	// Who has no credentials for a remote server will be asked to log in there;
	// that is between the agent and the server (DESIGN 11, 8). What listens on this
	// machine's loopback has no login.
	if e.header["Authorization"] == "" && !loopback(u.Hostname()) {
		return errOAuth
	}
	return nil
}

// isArray reports whether there is an array, or nothing.
func isArray(frame []byte, at jsonrpc.Span) bool {
	return !at.Ok() || jsonrpc.KindAt(frame, at) == jsonrpc.ArrayValue
}

// readText reads a text that a process could be given.
func readText(frame []byte, at jsonrpc.Span) (string, bool) {
	text, err := jsonrpc.ReadString(frame, at, maxText)
	return text, err == nil && !strings.ContainsRune(text, 0)
}

// readPair reads {"name": …, "value": …}.
func readPair(frame []byte, at jsonrpc.Span) (name, value string, ok bool) {
	var found [2]jsonrpc.Span
	if jsonrpc.Lookup(frame, at, []string{"name", "value"}, found[:]) != nil {
		return "", "", false
	}
	name, ok = readText(frame, found[0])
	if !ok || name == "" {
		return "", "", false
	}
	value, ok = readText(frame, found[1])
	return name, value, ok
}

// validHeader reports whether net/http could send the header.
func validHeader(name, value string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// wrapped reports whether the command is "belay wrap" already, as adopt writes it.
func (e *entry) wrapped(belay string) bool {
	if len(e.argv) < 2 || e.argv[1] != "wrap" {
		return false
	}
	base := func(path string) string {
		return strings.TrimSuffix(strings.ToLower(filepath.Base(path)), ".exe")
	}
	name := base(e.argv[0])
	return name == "belay" || name == base(belay)
}
