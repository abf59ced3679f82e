package lint

import (
	"net/url"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"

	"github.com/belayhq/belay/script"
)

// importedAs is what the compiler calls the module "scripting" in a bundle; more of
// them have a number behind.
const importedAs = "import_scripting"

// instead says what there is in place of names that scripts of other worlds use.
var instead = map[string]string{
	"require":        "a project imports only its own files",
	"module":         "write import and export",
	"process":        "there is no Node; what a call needs comes by its parameters",
	"Buffer":         "use Uint8Array, TextEncoder or Data",
	"window":         "use globalThis; there is no page",
	"document":       "there is no page",
	"navigator":      "there is no browser",
	"localStorage":   "AssistantTool.setState keeps values for one call",
	"sessionStorage": "AssistantTool.setState keeps values for one call",
	"XMLHttpRequest": "use fetch",
	"WebSocket":      "use fetch",
	"alert":          "a tool that needs a person sets requireApproval",
	"confirm":        "a tool that needs a person sets requireApproval",
	"prompt":         "a tool that needs a person sets requireApproval",
}

// absent finds uses of what does not exist here.
func (i *inspection) absent(world *script.World) {
	callees, components := make(map[ast.Node]bool), make(map[ast.Node]bool)
	for _, c := range i.calls {
		callees[bare(c.Callee)] = true
		if named(c.Callee) == "h" && len(c.ArgumentList) > 0 {
			components[bare(c.ArgumentList[0])] = true
		}
	}
	for n := range i.inside {
		of, name, ok := member(n)
		switch {
		case ok && imported(of):
			i.fromScripting(n, name, world, components[n])
		case ok && i.device(of, world) != "" && name != "isAvailable":
			i.addf(Warning, "not-available", of, "%s.%s is not available in Belay: using it throws NotAvailableError", i.device(of, world), name)
		}
		if name := i.device(n, world); name != "" && callees[n] {
			i.addf(Warning, "not-available", n, "%s is not available in Belay: using it throws NotAvailableError", name)
		}
		switch n := n.(type) {
		case *ast.Identifier:
			i.unknown(n, world)
		case *ast.RegExpLiteral:
			i.pattern(n, n.Pattern, n.Flags)
		case *ast.NewExpression: // what the compiler makes of literals that are too new
			i.newPattern(n)
		}
	}
}

// imported reports whether an expression is the module "scripting".
func imported(n ast.Node) bool {
	id, ok := n.(*ast.Identifier)
	return ok && strings.HasPrefix(id.Name.String(), importedAs)
}

// device is the name of a part of the device that an expression is, or "".
func (i *inspection) device(n ast.Node, world *script.World) string {
	name := ""
	if id, ok := n.(*ast.Identifier); ok && !i.bound[id.Name.String()] {
		name = id.Name.String()
	} else if of, member, ok := member(n); ok && (imported(of) || named(of) == "globalThis") {
		name = member
	}
	if slices.Contains(world.Missing, name) {
		return name
	}
	return ""
}

// fromScripting looks at one name of the module.
func (i *inspection) fromScripting(n ast.Node, name string, world *script.World, component bool) {
	switch {
	case slices.Contains(world.Exports, name), name == "default", name == "__esModule":
	case component:
		i.addf(Note, "no-screen", n, "%s is made and never shown: Belay has no screen", name)
	default:
		i.addf(Warning, "not-exported", n, "\"scripting\" has no %s in Belay: it is undefined", name)
	}
}

// unknown looks at a name that nothing in the bundle declares.
func (i *inspection) unknown(id *ast.Identifier, world *script.World) {
	name := id.Name.String()
	if i.bound[name] || i.guarded[name] || name == "arguments" || name == "undefined" || slices.Contains(world.Globals, name) {
		return
	}
	text := name + " does not exist in Belay: using it throws a ReferenceError"
	if why := instead[name]; why != "" {
		text += "; " + why
	}
	i.addf(Warning, "not-defined", id, "%s", text)
}

// newPattern looks at new RegExp("…", "u").
func (i *inspection) newPattern(n *ast.NewExpression) {
	if named(n.Callee) != "RegExp" || len(n.ArgumentList) != 2 {
		return
	}
	text, ok := n.ArgumentList[0].(*ast.StringLiteral)
	flags, also := n.ArgumentList[1].(*ast.StringLiteral)
	if ok && also {
		i.pattern(n, text.Value.String(), flags.Value.String())
	}
}

// pattern looks at a regular expression.
func (i *inspection) pattern(n ast.Node, text, flags string) {
	switch {
	case strings.Contains(flags, "v"):
		i.addf(Warning, "pattern", n, "the flag v of regular expressions is not known here")
	case strings.Contains(flags, "u"):
		if _, err := script.SpellPattern(text); err != nil {
			i.addf(Warning, "pattern", n, "this regular expression throws a SyntaxError here: %s", err)
		}
	}
}

// hosts names the hosts that the script asks by address.
func (i *inspection) hosts() {
	said := make(map[string]bool)
	for _, c := range i.calls {
		if named(c.Callee) != "fetch" || len(c.ArgumentList) == 0 {
			continue
		}
		text, first := "", c.ArgumentList[0]
		for sum, ok := first.(*ast.BinaryExpression); ok; sum, ok = first.(*ast.BinaryExpression) {
			first = sum.Left
		}
		switch a := first.(type) {
		case *ast.StringLiteral:
			text = a.Value.String()
		case *ast.TemplateLiteral:
			if len(a.Elements) > 0 {
				text = a.Elements[0].Parsed.String()
				if len(a.Expressions) > 0 && strings.Count(text, "/") < 3 {
					continue // the host itself is made of something
				}
			}
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || said[u.Host] {
			continue
		}
		said[u.Host] = true
		i.addf(Note, "host", c, "it asks %s, which must be allowed: allow_hosts in the configuration, --allow-host of \"belay tool run\"", u.Host)
	}
}
