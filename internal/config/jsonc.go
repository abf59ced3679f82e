package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// readJSONC reads JSON with comments and trailing commas. What is wrong is
// reported through the decoder; then the node is nil.
func readJSONC(d *decoder, text []byte) *node {
	r := jsonReader{text: plainJSON(text)}
	r.in = jsontext.NewDecoder(bytes.NewReader(r.text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	root, err := r.value(0)
	if err == nil {
		if _, more := r.in.ReadToken(); !errors.Is(more, io.EOF) {
			err = more
			if more == nil {
				err = fmt.Errorf("something follows the end of the file's value")
			}
		}
	}
	if err == nil {
		return root
	}
	at := r.in.InputOffset()
	if bad, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = bad.ByteOffset
		if bad.Err != nil {
			err = bad.Err
		}
	}
	n := r.place(&node{}, int(at))
	p := Problem{File: d.file, Line: n.line, Column: n.column, Text: "this is not JSON: " + firstLine(err.Error())}
	p.Text = strings.ReplaceAll(p.Text, "jsontext: ", "")
	d.problems = append(d.problems, p)
	return nil
}

// plainJSON is text of the same length without comments and trailing commas,
// so that places in it are places in the file.
func plainJSON(text []byte) []byte {
	out := bytes.Clone(text)
	if bytes.HasPrefix(out, []byte("\xef\xbb\xbf")) {
		copy(out, "   ")
	}
	comma := -1 // the last one, if only blanks and comments have followed it
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && (out[i+1] == '/' || out[i+1] == '*'):
			i = blankComment(out, i)
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return out
}

// blankComment replaces the comment at i, line breaks excepted, and returns
// where it ends.
func blankComment(out []byte, i int) int {
	last, end := "\n", len(out)
	if out[i+1] == '*' {
		last = "*/"
	}
	if n := bytes.Index(out[i+2:], []byte(last)); n >= 0 {
		end = i + 2 + n + len(last)
	}
	for ; i < end; i++ {
		if out[i] != '\n' && out[i] != '\r' {
			out[i] = ' '
		}
	}
	return end - 1
}

type jsonReader struct {
	text []byte
	in   *jsontext.Decoder
	line int // of offset past, for place
	past int
}

// place says where the byte at an offset stands. Offsets only grow.
func (r *jsonReader) place(n *node, at int) *node {
	at = min(max(at, r.past), len(r.text))
	r.line += bytes.Count(r.text[r.past:at], []byte("\n"))
	r.past = at
	start := bytes.LastIndexByte(r.text[:at], '\n') + 1
	n.line, n.column = r.line+1, utf8.RuneCount(r.text[start:at])+1
	return n
}

// next is a node for the token that comes.
func (r *jsonReader) next() (*node, error) {
	kind := r.in.PeekKind()
	at := int(r.in.InputOffset())
	for at < len(r.text) && strings.IndexByte(" \t\r\n,:", r.text[at]) >= 0 {
		at++
	}
	t, err := r.in.ReadToken()
	if err != nil {
		return nil, err
	}
	n := r.place(&node{}, at)
	raw := r.text[at:min(int(r.in.InputOffset()), len(r.text))]
	n.width = utf8.RuneCount(raw)
	switch kind {
	case '"':
		n.kind, n.text = kindString, t.String()
	case '0':
		n.kind, n.text = kindNumber, string(raw)
	case 't', 'f':
		n.kind, n.text = kindBool, string(raw)
	case '{':
		n.kind = kindMap
	case '[':
		n.kind = kindList
	}
	return n, nil
}

func (r *jsonReader) value(depth int) (*node, error) {
	n, err := r.next()
	if err != nil {
		return nil, err
	}
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("more than %d levels deep", maxJSONDepth)
	}
	for n.kind == kindMap && r.in.PeekKind() != '}' {
		key, err := r.next()
		if err != nil {
			return nil, err
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.pairs = append(n.pairs, pair{key, value})
	}
	for n.kind == kindList && r.in.PeekKind() != ']' {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	if n.kind == kindMap || n.kind == kindList {
		if _, err := r.in.ReadToken(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

const maxJSONDepth = 200 // an editor's file holds more than its servers
