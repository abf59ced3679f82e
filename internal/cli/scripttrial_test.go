package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAT86_Trial: top levels that loop, throw, register nothing or take all memory are
// refused, and neither the tools beside them nor the worker suffer.
func TestAT86_Trial(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for id, top := range map[string]string{
		"bomb": `const s = "x".repeat(1 << 29); (s + s).length`, "loop": `while (true) {}`, "throws": `throw new Error("at the top")`,
		"deep":   `const a: any[] = []; let b: any = a; for (let i = 0; i < 1e6; i++) { const c: any[] = []; b.push(c); b = c }; JSON.stringify(a)`,
		"nested": strings.Repeat("[", 900_000) + strings.Repeat("]", 900_000), "arrows": "const f = " + strings.Repeat("a=>", 300_000) + "1",
		"good": "", "other": "",
	} {
		writeScript(t, dir, id, `return {success: true, message: "well"}`)
		file := filepath.Join(dir, id, "assistant_tool.ts")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(top+"\n"+string(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeScript(t, dir, "none", "")
	if err := os.WriteFile(filepath.Join(dir, "none", "assistant_tool.ts"), []byte("export {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newMachine(t).toolServe(dir)
	if got := s.text(`"first"`, "good"); got != "well" {
		t.Errorf("beside them a good tool says %q", got)
	}
	for id := 1; ; id++ { // until all of them are refused
		if err := s.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id)); err != nil {
			t.Fatal(err)
		}
		m, err := s.Expect(fmt.Sprint(id))
		if err != nil {
			t.Fatal(err)
		}
		list := m.Raw
		if !strings.Contains(list, `"name":"good"`) || !strings.Contains(list, `"name":"other"`) {
			t.Fatal(list)
		}
		if strings.Count(list, `"name":`) == 2 {
			break
		}
		if id > 30 {
			t.Fatalf("still listed: %s", list)
		}
	}
	for i := range 5 {
		if got := s.text(fmt.Sprintf(`"again%d"`, i), "other"); got != "well" {
			t.Errorf("%q", got)
		}
	}
	contains(t, s.stderr.String(), "it ran out of memory", "at the top", "ran for more than 5s", "registerExecuteTool must be called")
}
