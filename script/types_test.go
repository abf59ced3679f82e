package script

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dop251/goja"

	"github.com/belayhq/belay/script/types"
)

// TestTypesAreTheWorld: what the declarations for editors name is what a script finds,
// and the other way round.
func TestTypesAreTheWorld(t *testing.T) {
	world, err := TheWorld()
	if err != nil {
		t.Fatal(err)
	}
	global, module, ok := strings.Cut(types.Declarations, `declare module "scripting" {`)
	if !ok {
		t.Fatal("there is no module")
	}
	find := func(text, pattern string) (names []string) {
		for _, m := range regexp.MustCompile(`(?m)`+pattern).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	declared := find(global, `^declare (?:var|function|namespace) (\w+)`)
	exported := find(module, `^  export (?:const|function|import) (\w+)`)
	unseen := find(module, `Belay has no screen \*/\n  export const (\w+)`)

	var language []string
	plain := goja.New()
	names, err := plain.RunString("Object.getOwnPropertyNames(globalThis)")
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.ExportTo(names, &language); err != nil {
		t.Fatal(err)
	}
	for _, name := range world.Globals {
		if !slices.Contains(declared, name) && !slices.Contains(language, name) && name != "__scripting" {
			t.Errorf("the global %s is not declared", name)
		}
	}
	for _, name := range declared {
		if !slices.Contains(world.Globals, name) && name != "JSX" {
			t.Errorf("the global %s is declared, and does not exist", name)
		}
	}
	for _, name := range world.Exports {
		if !slices.Contains(exported, name) {
			t.Errorf("the module's %s is not declared", name)
		}
	}
	for _, name := range exported {
		if !slices.Contains(world.Exports, name) && !slices.Contains(unseen, name) {
			t.Errorf("the module's %s is declared, and does not exist", name)
		}
	}
	for _, name := range world.Missing {
		if !strings.Contains(global, "declare var "+name+": ScriptingUnavailable") {
			t.Errorf("%s is not declared as unavailable", name)
		}
	}
}
