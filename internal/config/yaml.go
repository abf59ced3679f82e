package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// readYAML reads one document. What is wrong is reported through the decoder;
// then the node is nil.
func readYAML(d *decoder, text []byte) *node {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		d.syntax(err)
		return nil
	}
	y := yamlReader{d: d, anchors: map[string]*node{}}
	var root *node
	for _, doc := range tree.Docs {
		if doc.Body == nil || isComment(doc.Body) {
			continue
		}
		if root != nil {
			y.failf(doc.Body, "only one document is read; remove the line ---")
			return nil
		}
		root = y.node(doc.Body, 0)
	}
	if root == nil {
		root = &node{kind: kindMap, line: 1, column: 1}
	}
	return root
}

func isComment(n ast.Node) bool {
	_, ok := n.(*ast.CommentGroupNode)
	return ok
}

// syntax reports a text that is no YAML. Nothing of the line is shown but a key
// at its start, because what stands there cannot be told apart.
func (d *decoder) syntax(err error) {
	p := Problem{File: d.file, Text: "this is not YAML"}
	if bad, ok := errors.AsType[yaml.Error](err); ok {
		p.Text = firstLine(bad.GetMessage())
		if t := bad.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
			p.Source, p.mark = keyOnly(d.lines, p.Line, p.Column)
		}
	}
	d.problems = append(d.problems, p)
}

// keyOnly is a line of which only the indentation and a key in front are shown.
func keyOnly(lines []string, line, column int) (text string, mark int) {
	if line < 1 || line > len(lines) {
		return "", 0
	}
	whole := strings.ReplaceAll(strings.TrimRight(lines[line-1], "\r"), "\t", " ")
	indent := len(whole) - len(strings.TrimLeft(whole, " -"))
	key, _, ok := strings.Cut(whole[indent:], ":")
	if !ok || strings.ContainsAny(key, "\"'{}[],#=") || len(key) > 64 {
		return "", 0
	}
	return printable(whole[:indent] + key + ": …"), min(max(column-1, 0), utf8.RuneCountInString(whole[:indent]+key)+2)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// yamlReader turns the parser's tree into nodes.
type yamlReader struct {
	d       *decoder
	anchors map[string]*node
}

const maxDepth = 40 // maps in maps; the schema needs eight

func (y *yamlReader) failf(n ast.Node, format string, args ...any) {
	y.d.failf(spot{value: place(&node{}, n.GetToken()), secret: true}, format, args...)
}

// place sets where a node stands.
func place(n *node, t *token.Token) *node {
	if t != nil && t.Position != nil {
		n.line, n.column = t.Position.Line, t.Position.Column
		n.width = utf8.RuneCountInString(strings.TrimSpace(t.Origin))
		if strings.Contains(t.Origin, "\n") {
			n.width = utf8.RuneCountInString(firstLine(strings.TrimSpace(t.Origin)))
		}
	}
	return n
}

func (y *yamlReader) node(in ast.Node, depth int) *node {
	out := place(&node{}, in.GetToken())
	if depth > maxDepth {
		y.failf(in, "more than %d levels deep", maxDepth)
		return out
	}
	switch in := in.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		out.kind, out.text = kindString, in.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindString, in.Value.Value
	case *ast.BoolNode:
		out.kind, out.text = kindBool, in.Token.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = kindNumber, in.GetToken().Value
	case *ast.MappingNode:
		out.kind = kindMap
		if len(in.Values) > 0 {
			place(out, in.Values[0].Key.GetToken())
		}
		for _, v := range in.Values {
			y.pair(out, v, depth)
		}
	case *ast.MappingValueNode:
		out.kind = kindMap
		place(out, in.Key.GetToken())
		y.pair(out, in, depth)
	case *ast.SequenceNode:
		out.kind = kindList
		for _, v := range in.Values {
			out.items = append(out.items, y.node(v, depth+1))
		}
	case *ast.AnchorNode:
		out = y.node(in.Value, depth+1)
		y.anchors[in.Name.GetToken().Value] = out
	case *ast.AliasNode:
		name := in.Value.GetToken().Value
		same, ok := y.anchors[name]
		if !ok {
			y.failf(in, "no anchor &%s stands before this alias", name)
			return out
		}
		return same
	case *ast.TagNode:
		y.failf(in, "tags such as %s are not used here", in.Start.Value)
	default:
		y.failf(in, "%s is not used here", strings.ToLower(in.Type().String()))
	}
	return out
}

// pair adds one entry to a map; << adds those of another map, which give way to
// the map's own.
func (y *yamlReader) pair(out *node, v *ast.MappingValueNode, depth int) {
	value := y.node(v.Value, depth+1)
	if v.Key.IsMergeKey() {
		from := []*node{value}
		if value.kind == kindList {
			from = value.items
		}
		for _, m := range from {
			if m.kind != kindMap {
				y.failf(v.Value, "<< wants a map, not %s", m.kind)
				return
			}
			out.pairs = append(append([]pair(nil), m.pairs...), out.pairs...)
		}
		return
	}
	key := y.node(keyNode(v.Key), depth+1)
	if key.kind > kindBool {
		y.failf(v.Value, "a key has to be text, not %s", key.kind)
		return
	}
	out.pairs = append(out.pairs, pair{key, value})
}

func keyNode(k ast.MapKeyNode) ast.Node {
	if m, ok := k.(*ast.MappingKeyNode); ok && m.Value != nil {
		return m.Value
	}
	return k
}

var _ fmt.Stringer = kind(0)
