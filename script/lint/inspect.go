package lint

import (
	"fmt"
	"path"
	"strings"

	"github.com/dop251/goja/ast"

	"github.com/belayhq/belay/script"
)

// inspection looks at one bundle.
type inspection struct {
	*program
	source string

	executes []ast.Node // what was registered to be executed
	requests []ast.Node // what was registered to ask, or to show
	loose    bool       // a registration passes through hands that are not followed

	found []Finding
	said  map[string]bool
}

// inspect applies the rules that need the tree. A bundle that cannot be read is not
// this package's to complain of: loading it does.
func inspect(source, code string) []Finding {
	p, err := read(code)
	if err != nil {
		return nil
	}
	i := &inspection{program: p, source: source, said: make(map[string]bool)}
	i.registrations()
	i.stops()
	world, err := script.TheWorld()
	if err == nil {
		i.absent(world)
	}
	i.hosts()
	return i.found
}

// addf notes a finding at a node; the same one of the same place once.
func (i *inspection) addf(level Level, rule string, n ast.Node, format string, args ...any) {
	f := Finding{Level: level, Rule: rule, File: i.source, Text: fmt.Sprintf(format, args...)}
	name, line, column := i.at(n)
	if name = path.Clean(strings.TrimPrefix(name, "/")); strings.HasPrefix(name, "..") || strings.Contains(name, ":") {
		return // of the host's own module
	} else if line > 0 {
		f.File, f.Line, f.Column = name, line, column
	}
	key := fmt.Sprint(f.Rule, f.File, f.Line, f.Column)
	if i.said[key] {
		return
	}
	i.said[key] = true
	i.found = append(i.found, f)
}

// Names of the registrations.
const (
	registerExecute  = "registerExecuteTool"
	registerApproved = "registerExecuteToolWithApproval"
	registerRequest  = "registerApprovalRequest"
	registerView     = "registerUIView"
)

// registrations finds what is registered.
func (i *inspection) registrations() {
	callees := make(map[ast.Node]bool)
	for _, c := range i.calls {
		name := named(c.Callee)
		callees[bare(c.Callee)] = true
		if len(c.ArgumentList) == 0 {
			continue
		}
		switch name {
		case registerExecute, registerApproved:
			i.executes = append(i.executes, c.ArgumentList[0])
		case registerRequest, registerView:
			i.requests = append(i.requests, c.ArgumentList[0])
		}
	}
	for n := range i.inside { // every node
		if name := named(n); (name == registerExecute || name == registerApproved) && !callees[bare(n)] && !i.isCallee(n, callees) {
			i.loose = true
		}
	}
}

// isCallee reports whether a node is only the wrapping of one that is called.
func (i *inspection) isCallee(n ast.Node, callees map[ast.Node]bool) bool { return callees[bare(n)] }

// isTool reports whether an expression is AssistantTool, by that name, as a member of
// what was imported, or by another name for it.
func (i *inspection) isTool(n ast.Node) bool {
	const tool = "AssistantTool"
	if named(n) == tool {
		return true
	}
	id, ok := bare(n).(*ast.Identifier)
	if !ok {
		return false
	}
	for _, what := range i.defined[id.Name.String()] {
		if named(what) == tool {
			return true
		}
	}
	return false
}

// stops looks at how the script deals with a Stop.
func (i *inspection) stops() {
	run, asked := i.reached(i.executes), i.reached(i.requests)
	reads, loops, written := false, ast.Node(nil), make(map[ast.Node]bool)
	for n := range i.inside {
		if set, ok := n.(*ast.AssignExpression); ok {
			written[set.Left] = true
		}
	}
	for n := range i.inside {
		if of, name, ok := member(n); ok && name == "isCancelled" && i.isTool(of) && !written[n] {
			reads = true
		}
		if id, ok := n.(*ast.Identifier); ok && id.Name == "isCancelled" { // const { isCancelled } = …, to be fair
			reads = true
		}
	}
	for n := range i.inside {
		set, ok := n.(*ast.AssignExpression)
		if ok {
			of, name, ok := member(set.Left)
			switch {
			case !ok || !i.isTool(of):
			case name == "isCancelled":
				i.addf(Error, "is-cancelled-set", set, "AssistantTool.isCancelled can only be read")
			case name == "onCancel":
				i.onCancel(set, run, asked)
			}
		}
		if run[n] && isLoop(n) && i.waits(n) && (loops == nil || n.Idx0() < loops.Idx0()) {
			loops = n
		}
	}
	if loops != nil && !reads {
		i.addf(Note, "no-is-cancelled", loops, "this loop goes on after a Stop, until it is interrupted: let it look at AssistantTool.isCancelled")
	}
}

// onCancel looks at one assignment of it.
func (i *inspection) onCancel(set *ast.AssignExpression, run, asked map[ast.Node]bool) {
	if _, ok := set.Right.(*ast.NullLiteral); ok || named(set.Right) == "undefined" {
		return
	}
	around := i.inside[set]
	switch {
	case i.loose || run[set]:
	case around == nil || i.immediate(around) && i.inside[around] == nil:
		i.addf(Error, "on-cancel-outside", set, "onCancel is set at the top level, where it has no effect: set it inside the execute function")
	case asked[set]:
		i.addf(Error, "on-cancel-outside", set, "onCancel is set where approval is asked for, and has no effect there: it belongs into the execute function")
	default:
		i.addf(Error, "on-cancel-outside", set, "onCancel is set in a function that the execute function does not call, where it has no effect")
	}
	i.handler(set)
}

// handler looks at what onCancel is set to.
func (i *inspection) handler(set *ast.AssignExpression) {
	fn := bare(set.Right)
	if id, ok := fn.(*ast.Identifier); ok {
		if known := i.defined[id.Name.String()]; len(known) == 1 {
			fn = bare(known[0])
		}
	}
	switch fn.(type) {
	case *ast.StringLiteral, *ast.NumberLiteral, *ast.BooleanLiteral, *ast.TemplateLiteral, *ast.ArrayLiteral, *ast.RegExpLiteral:
		i.addf(Error, "on-cancel-type", set, "onCancel must be a function that returns a string; setting anything else throws a TypeError")
		return
	}
	if !isFunction(fn) {
		return
	}
	if isAsync(fn) {
		i.addf(Error, "on-cancel-async", fn, "onCancel is async: it returns a promise, which is no message, and the partial result is lost")
	}
	walk(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpression)
		if !ok {
			return true
		}
		switch name := named(call.Callee); name {
		case "fetch", "setTimeout", "setInterval":
			i.addf(Warning, "on-cancel-busy", call, "onCancel should only return what there is already: %s starts something that nobody waits for", name)
		}
		return true
	})
}

func isLoop(n ast.Node) bool {
	switch n.(type) {
	case *ast.ForStatement, *ast.ForOfStatement, *ast.ForInStatement, *ast.WhileStatement, *ast.DoWhileStatement:
		return true
	}
	return false
}

// waits reports whether a loop waits for something each time: such a loop can be long,
// and has no need to be.
func (i *inspection) waits(loop ast.Node) bool {
	found := false
	walk(loop, func(n ast.Node) bool {
		if _, ok := n.(*ast.AwaitExpression); ok {
			found = true
		}
		return !found && (n == loop || !isFunction(n))
	})
	return found
}
