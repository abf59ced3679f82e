package aggregate

import (
	"bytes"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
)

// separator stands between the name of a server and that of a tool or prompt.
const separator = "__"

// maxName bounds names, URIs and task ids that are looked up, in bytes.
const maxName = 8 << 10

// prefix is what stands in front of the names of a server's tools, as it is
// written inside a JSON string.
func prefix(server string) []byte {
	quoted := jsonrpc.AppendString(nil, server+separator)
	return quoted[1 : len(quoted)-1]
}

// prefixed is the edit that puts a server's name in front of the JSON string at
// s; every byte of the name itself stays.
func prefixed(s jsonrpc.Span, server string) jsonrpc.Edit {
	at := s.Start + 1
	return jsonrpc.Edit{At: jsonrpc.Span{Start: at, End: at}, New: prefix(server)}
}

// owner is the server of a prefixed name: the one with the longest name that it
// begins with; "" if there is none.
func owner(name string, servers []string) string {
	best := ""
	for _, server := range servers {
		if len(server) > len(best) && strings.HasPrefix(name, server) && strings.HasPrefix(name[len(server):], separator) {
			best = server
		}
	}
	return best
}

// unprefixed is the edit that takes a server's name away again.
func unprefixed(frame []byte, s jsonrpc.Span, name, server string) jsonrpc.Edit {
	raw := s.Of(frame)
	if p := prefix(server); bytes.HasPrefix(raw[1:], p) {
		return jsonrpc.Edit{At: jsonrpc.Span{Start: s.Start + 1, End: s.Start + 1 + len(p)}}
	}
	// It was spelled with other escapes.
	return jsonrpc.Edit{At: s, New: jsonrpc.AppendString(nil, name[len(server)+len(separator):])}
}
