package lint

import (
	"fmt"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/parser"
)

// program is a bundle, with what its names stand for.
type program struct {
	file  *file.File
	top   ast.Node // what the compiler has put everything into
	calls []*ast.CallExpression

	bound   map[string]bool       // names that something in the bundle declares
	defined map[string][]ast.Node // what a name, a variable's or a member's, may stand for
	guarded map[string]bool       // names that the script asks for with typeof
	inside  map[ast.Node]ast.Node // the function around a node: of assignments, calls and functions
}

// parse is the parser, without the panics that some mistakes in a text lead to
// (`const[...[`).
func parse(code string) (parsed *ast.Program, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("the parser failed: %v", bug)
		}
	}()
	// The name is none that an author's file has: it shows where the map has no entry.
	return parser.ParseFile(nil, "/belay:bundle", code, 0)
}

// read parses a bundle.
func read(code string) (*program, error) {
	parsed, err := parse(code)
	if err != nil {
		return nil, err
	}
	p := &program{
		file: parsed.File, bound: make(map[string]bool), defined: make(map[string][]ast.Node),
		guarded: make(map[string]bool), inside: make(map[ast.Node]ast.Node),
	}
	for _, s := range parsed.Body { // (() => { … })()
		if e, ok := s.(*ast.ExpressionStatement); ok {
			if call, ok := e.Expression.(*ast.CallExpression); ok && isFunction(call.Callee) {
				p.top = call.Callee
			}
		}
		p.collect(s, nil)
	}
	return p, nil
}

// collect notes what names stand for, below n, which lies in the function around.
func (p *program) collect(n, around ast.Node) {
	define := func(name string, what ast.Node) {
		if name != "" && what != nil {
			p.defined[name] = append(p.defined[name], what)
		}
	}
	switch n := n.(type) {
	case *ast.Binding:
		p.bind(n.Target, n.Initializer)
	case *ast.FunctionDeclaration:
		if n.Function.Name != nil {
			p.bound[n.Function.Name.Name.String()] = true
			define(n.Function.Name.Name.String(), n.Function)
		}
	case *ast.ClassLiteral:
		if n.Name != nil {
			p.bound[n.Name.Name.String()] = true
			define(n.Name.Name.String(), n)
		}
	case *ast.FunctionLiteral:
		if n.Name != nil {
			p.bound[n.Name.Name.String()] = true
		}
		p.parameters(n.ParameterList)
	case *ast.ArrowFunctionLiteral:
		p.parameters(n.ParameterList)
	case *ast.CatchStatement:
		p.bind(n.Parameter, nil)
	case *ast.ForDeclaration:
		p.bind(n.Target, nil)
	case *ast.AssignExpression:
		define(named(n.Left), n.Right)
	case *ast.PropertyKeyed:
		if s, ok := n.Key.(*ast.StringLiteral); ok {
			define(s.Value.String(), n.Value)
		}
	case *ast.MethodDefinition:
		if s, ok := n.Key.(*ast.StringLiteral); ok {
			define(s.Value.String(), n.Body)
		}
	case *ast.FieldDefinition:
		if s, ok := n.Key.(*ast.StringLiteral); ok && n.Initializer != nil {
			define(s.Value.String(), n.Initializer)
		}
	case *ast.UnaryExpression:
		if id, ok := n.Operand.(*ast.Identifier); ok && n.Operator.String() == "typeof" {
			p.guarded[id.Name.String()] = true
		}
	case *ast.CallExpression:
		p.calls = append(p.calls, n)
	}
	p.inside[n] = around
	if isFunction(n) && n != p.top {
		around = n
	}
	children(n, func(c ast.Node) { p.collect(c, around) })
}

func (p *program) parameters(list *ast.ParameterList) {
	if list != nil && list.Rest != nil {
		p.bind(list.Rest, nil)
	}
}

// bind notes every name in the target of a declaration.
func (p *program) bind(target, initializer ast.Node) {
	if target == nil {
		return
	}
	walk(target, func(n ast.Node) bool {
		if id, ok := n.(*ast.Identifier); ok {
			name := id.Name.String()
			p.bound[name] = true
			if initializer != nil {
				p.defined[name] = append(p.defined[name], initializer)
			}
		}
		return true
	})
}

// reached is everything that some nodes mention, by way of any name: see the package.
func (p *program) reached(from []ast.Node) map[ast.Node]bool {
	seen, names := make(map[ast.Node]bool), make(map[string]bool)
	var next []ast.Node
	mention := func(name string) {
		if name != "" && !names[name] {
			names[name] = true
			next = append(next, p.defined[name]...)
		}
	}
	for next = append(next, from...); len(next) > 0; {
		n := next[len(next)-1]
		next = next[:len(next)-1]
		walk(n, func(n ast.Node) bool {
			if seen[n] {
				return false
			}
			seen[n] = true
			switch n := n.(type) {
			case *ast.Identifier:
				mention(n.Name.String())
			case *ast.DotExpression:
				mention(n.Identifier.Name.String())
			case *ast.BracketExpression:
				if _, name, ok := member(n); ok {
					mention(name)
				}
			}
			return true
		})
	}
	return seen
}

// immediate reports whether a function is called where it stands, by whatever is.
func (p *program) immediate(fn ast.Node) bool {
	for _, c := range p.calls {
		if bare(c.Callee) == fn {
			return true
		}
	}
	return false
}

// at is the place of a node in the author's files. The source map's reader does not
// find the first entry of a map: what it stands for has the line of the next one, and
// no column.
func (p *program) at(n ast.Node) (name string, line, column int) {
	code := p.file.Source()
	for i := int(n.Idx0()) - p.file.Base(); i >= 0 && i < len(code) && code[i] != '\n'; i++ {
		if at := p.file.Position(i); at.Filename != p.file.Name() {
			if i == int(n.Idx0())-p.file.Base() {
				column = at.Column + 1 // maps count from 0
			}
			return at.Filename, at.Line, column
		}
	}
	return "", 0, 0
}
