package script

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/unistring"
)

// spellLiterals spells out \p{…} in the regular expressions that a program is written
// with. One with a property that is not known becomes a call that throws when the
// program comes to it: a branch that is never taken does no harm.
func spellLiterals(p *ast.Program) {
	spellBelow(reflect.ValueOf(&p.Body).Elem(), make(map[any]bool))
}

// spellBelow looks at everything that v holds, once: the tree has branches in common.
// The tree is walked by its shape, since the parser's package has no way to do it.
func spellBelow(v reflect.Value, seen map[any]bool) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			spellBelow(v.Index(i), seen)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			spellBelow(field, seen)
		}
	case reflect.Interface:
		if literal, ok := reflect.TypeAssert[*ast.RegExpLiteral](v); ok {
			v.Set(reflect.ValueOf(spellLiteral(literal)))
			return
		}
		spellBelow(v.Elem(), seen)
	case reflect.Pointer:
		if v.IsNil() || !v.CanInterface() || seen[v.Interface()] {
			return
		}
		seen[v.Interface()] = true
		spellBelow(v.Elem(), seen)
	}
}

// spellLiteral is what stands for a literal.
func spellLiteral(l *ast.RegExpLiteral) ast.Expression {
	if !strings.Contains(l.Flags, "u") {
		return l
	}
	text, err := SpellPattern(l.Pattern)
	if err == nil {
		l.Pattern = text
		return l
	}
	word := func(text string) ast.Expression {
		return &ast.StringLiteral{Idx: l.Idx, Literal: strconv.Quote(text), Value: unistring.NewFromString(text)}
	}
	return &ast.NewExpression{
		New: l.Idx, LeftParenthesis: l.Idx, RightParenthesis: l.Idx,
		Callee:       &ast.Identifier{Idx: l.Idx, Name: "RegExp"},
		ArgumentList: []ast.Expression{word(l.Pattern), word(l.Flags)},
	}
}
