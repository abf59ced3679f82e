package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// ErrSyntax is wrapped by every error about a file that is not the JSON, with
// comments and trailing commas, that editors read; ErrShape by those about
// JSON that holds its servers in another way than editors do.
var (
	ErrSyntax = errors.New("not valid JSON")
	ErrShape  = errors.New("not as an editor writes it")
)

// place is an error at a position in a file. Lines and columns count from 1;
// a column is a byte.
type place struct {
	line, column int
	err          error
}

func (p *place) Error() string { return fmt.Sprintf("%d:%d: %v", p.line, p.column, p.err) }
func (p *place) Unwrap() error { return p.err }

// maxDepth bounds the nesting: the parser recurses. Real files stay below 20.
const maxDepth = 256

var byteOrderMark = []byte("\xef\xbb\xbf")

// document is a file's text and what was read from it. Offsets count from the
// beginning of body.
type document struct {
	mark []byte // the byte order mark, if there is one
	body []byte
	root hujson.Value
}

// parse reads JSON with comments and trailing commas.
func parse(text []byte) (*document, error) {
	d := &document{body: text}
	if bytes.HasPrefix(text, byteOrderMark) {
		d.mark, d.body = text[:len(byteOrderMark)], text[len(byteOrderMark):]
	}
	switch {
	case bytes.HasPrefix(text, []byte("\xff\xfe")), bytes.HasPrefix(text, []byte("\xfe\xff")):
		return nil, d.errorAt(0, "%w: it is UTF-16; save it as UTF-8", ErrSyntax)
	case len(bytes.TrimSpace(d.body)) == 0:
		return nil, d.errorAt(0, "%w: the file is empty", ErrSyntax)
	}
	if at := tooDeep(d.body); at >= 0 {
		return nil, d.errorAt(at, "%w: more than %d levels deep", ErrSyntax, maxDepth)
	}
	// The parser wants every line comment to end; the last one in a file may not.
	root, err := hujson.Parse(append(slices.Clip(d.body), '\n'))
	if err != nil {
		return nil, d.explain(err)
	}
	d.root = root
	return d, nil
}

// tooDeep returns where the nesting passes the bound, or -1.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			i = skipComment(text, i)
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// skipComment returns the last byte of a comment that begins at i, or i.
func skipComment(text []byte, i int) int {
	if i+1 == len(text) {
		return i
	}
	var end string
	switch text[i+1] {
	case '/':
		end = "\n"
	case '*':
		end = "*/"
	default:
		return i
	}
	j := bytes.Index(text[i+2:], []byte(end))
	if j < 0 {
		return len(text)
	}
	return i + 2 + j + len(end) - 1
}

var parserError = regexp.MustCompile(`^hujson: line (\d+), column (\d+): `)

// explain puts the parser's words into ours.
func (d *document) explain(err error) error {
	text := err.Error()
	p := &place{line: 1, column: 1}
	if m := parserError.FindStringSubmatch(text); m != nil {
		p.line, _ = strconv.Atoi(m[1])
		p.column, _ = strconv.Atoi(m[2])
		text = text[len(m[0]):]
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		what, _, _ := strings.Cut(text, ":")
		return d.errorAt(len(bytes.TrimRight(d.body, " \t\r\n")), "%w: the file ends too early (%s)", ErrSyntax, what)
	}
	if strings.HasPrefix(text, "invalid literal:") {
		text = "invalid literal" // its text may be a secret
	}
	p.err = fmt.Errorf("%w: %s", ErrSyntax, text)
	return p
}

// errorAt is an error at an offset of the body.
func (d *document) errorAt(at int, format string, args ...any) error {
	before := d.body[:min(at, len(d.body))]
	return &place{
		line: 1 + bytes.Count(before, []byte("\n")), column: len(before) - bytes.LastIndexByte(before, '\n'),
		err: fmt.Errorf(format, args...),
	}
}

// member returns the member of an object, or nil. Two of the same name are an
// error: programs differ in which of them they take.
func (d *document) member(obj *hujson.Object, key string) (*hujson.ObjectMember, error) {
	var found *hujson.ObjectMember
	for i := range obj.Members {
		m := &obj.Members[i]
		if name(m) != key {
			continue
		}
		if found != nil {
			return nil, d.errorAt(m.Name.StartOffset, "%w: the key %q is there twice", ErrShape, key)
		}
		found = m
	}
	return found, nil
}

// distinct is an error if two members have the same name.
func (d *document) distinct(obj *hujson.Object) error {
	seen := make(map[string]bool, len(obj.Members))
	for i := range obj.Members {
		key := name(&obj.Members[i])
		if seen[key] {
			return d.errorAt(obj.Members[i].Name.StartOffset, "%w: the key %q is there twice", ErrShape, key)
		}
		seen[key] = true
	}
	return nil
}

func name(m *hujson.ObjectMember) string {
	s, _ := text(m.Name) // the parser lets nothing else be a name
	return s
}

// text is a string's value; false for anything else.
func text(v hujson.Value) (string, bool) {
	l, ok := v.Value.(hujson.Literal)
	if !ok || l.Kind() != '"' {
		return "", false
	}
	return l.String(), true
}

// raw is a value as it is written.
func (d *document) raw(v hujson.Value) string { return string(d.body[v.StartOffset:v.EndOffset]) }

// edit replaces what stands between two offsets of the body.
type edit struct {
	from, to int
	text     string
}

// apply returns the whole file with edits made; false if two of them touch the
// same text, which only data of a user's with a form inside another can bring
// about.
func (d *document) apply(edits []edit) ([]byte, bool) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	out := slices.Clone(d.mark)
	at, last := 0, -1
	for _, e := range edits {
		if e.from < at || e.from == last {
			return nil, false
		}
		out = append(append(out, d.body[at:e.from]...), e.text...)
		at, last = e.to, e.from
	}
	return append(out, d.body[at:]...), true
}

// lead is the white space that a new line begins with when what follows it
// does: the line break and the indentation before a value, else otherwise.
func lead(before hujson.Extra, otherwise string) string {
	i := bytes.LastIndexByte(before, '\n')
	if i < 0 || len(bytes.TrimSpace(before[i:])) > 0 {
		return otherwise
	}
	if i > 0 && before[i-1] == '\r' {
		i--
	}
	return string(before[i:])
}

// comma returns where the comma after a value is; extra is what stands between.
func comma(v hujson.Value) int { return v.EndOffset + len(v.AfterExtra) }
