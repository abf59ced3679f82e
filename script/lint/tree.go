package lint

import (
	"reflect"

	"github.com/dop251/goja/ast"
)

// children calls visit for every node right below n, in the order of the text but for
// what says otherwise. Names of members, labels and functions are no nodes here: they
// refer to nothing.
func children(n ast.Node, visit func(ast.Node)) {
	switch n := n.(type) {
	case *ast.DotExpression:
		visit(n.Left)
		return
	case *ast.PrivateDotExpression:
		visit(n.Left)
		return
	case *ast.LabelledStatement:
		visit(n.Statement)
		return
	case *ast.BranchStatement, *ast.MetaProperty:
		return
	case *ast.PropertyKeyed:
		if n.Computed {
			visit(n.Key)
		}
		visit(n.Value)
		return
	case *ast.PropertyShort:
		visit(&n.Name)
		if n.Initializer != nil {
			visit(n.Initializer)
		}
		return
	case *ast.MethodDefinition:
		if n.Computed {
			visit(n.Key)
		}
		visit(n.Body)
		return
	case *ast.FieldDefinition:
		if n.Computed {
			visit(n.Key)
		}
		if n.Initializer != nil {
			visit(n.Initializer)
		}
		return
	}
	v := reflect.ValueOf(n).Elem()
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Name == "DeclarationList", f.Name == "Name":
			continue
		default:
			below(v.Field(i), visit)
		}
	}
}

// below visits what one field holds: a node, or a list of them.
func below(v reflect.Value, visit func(ast.Node)) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			below(v.Index(i), visit)
		}
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Kind() == reflect.Interface && v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() {
			return
		}
		if n, ok := reflect.TypeAssert[ast.Node](v); ok {
			visit(n)
		}
	case reflect.Struct:
		if v.CanAddr() {
			if n, ok := reflect.TypeAssert[ast.Node](v.Addr()); ok {
				visit(n)
			}
		}
	}
}

// walk visits n and everything below it, as long as enter says so.
func walk(n ast.Node, enter func(ast.Node) bool) {
	if !enter(n) {
		return
	}
	children(n, func(c ast.Node) { walk(c, enter) })
}

// isFunction reports whether a node has a body that runs when it is called.
func isFunction(n ast.Node) bool {
	switch n.(type) {
	case *ast.FunctionLiteral, *ast.ArrowFunctionLiteral:
		return true
	}
	return false
}

// isAsync reports whether a function returns a promise, whatever it says.
func isAsync(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FunctionLiteral:
		return n.Async
	case *ast.ArrowFunctionLiteral:
		return n.Async
	}
	return false
}

// bare is an expression without what is only there for the compiler's sake: the
// (0, f) of imported functions, an optional chain's marks.
func bare(n ast.Node) ast.Node {
	for {
		switch e := n.(type) {
		case *ast.SequenceExpression:
			n = e.Sequence[len(e.Sequence)-1]
		case *ast.OptionalChain:
			n = e.Expression
		case *ast.Optional:
			n = e.Expression
		default:
			return n
		}
	}
}

// member is the object and the name of a.name or a["name"].
func member(n ast.Node) (of ast.Node, name string, ok bool) {
	switch n := bare(n).(type) {
	case *ast.DotExpression:
		return bare(n.Left), n.Identifier.Name.String(), true
	case *ast.BracketExpression:
		if s, is := n.Member.(*ast.StringLiteral); is {
			return bare(n.Left), s.Value.String(), true
		}
	}
	return nil, "", false
}

// named is the name that an expression ends with: its own, or that of the member.
func named(n ast.Node) string {
	if id, ok := bare(n).(*ast.Identifier); ok {
		return id.Name.String()
	}
	if _, name, ok := member(n); ok {
		return name
	}
	return ""
}
