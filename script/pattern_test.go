package script

import (
	"strings"
	"testing"
	"unicode"

	"github.com/dop251/goja"
)

// TestUnicodeProperties: \p{…} of the flag u stands for its characters, in literals as
// in what is put together at run time, inside of classes and negated (AT-02).
func TestUnicodeProperties(t *testing.T) {
	for body, want := range map[string]string{
		`return "Größe 42 α😀".replace(/\p{L}/gu, "x")`:                                         "xxxxx 42 x😀",
		`return "Größe 42 α😀".replace(/[^\p{Letter}\p{Nd}]+/gu, "_")`:                          "Größe_42_α_",
		`return "ab1 ".replace(/\P{L}/gu, "x")`:                                                "abxx",
		`return "ab1-".replace(/[\P{L}b]/gu, "x")`:                                             "axxx",
		`return /^\p{Script=Greek}+$/u.test("αβγ") + "" + /\p{sc=Greek}/u.test("a")`:           "truefalse",
		`return "p{L}".replace(/\\p{L}/, "x") + "p{L}".replace(/\p{L}/, "y")`:                  "p{L}y",
		`return /(?<=\p{Lu})\p{Ll}/u.exec("xAb")![0]`:                                          "b",
		`return /^\p{Lu}$/iu.test("a")`:                                                        "true",
		`return new RegExp("^\\p{" + "Alphabetic}$", "u").test("é")`:                           "true",
		`return RegExp("\\p{L}", "u").test("1")`:                                               "false",
		`try { new RegExp("\\p{Emoji}", "u") } catch (e) { return e.name + ": " + e.message }`: `SyntaxError: Invalid regular expression: \p{Emoji} is not known here`,
		`try { new RegExp("\\p{L", "u") } catch (e) { return e.name }`:                         "SyntaxError",
		`try { new RegExp("\\p{L}".repeat(1000), "u") } catch (e) { return e.name }`:           "SyntaxError",
		`const r = /\p{L}/u; return [r instanceof RegExp, r.constructor === RegExp, RegExp.name, RegExp.length, /a/ instanceof RegExp, new RegExp(r, "gu").flags, RegExp.prototype === Object.getPrototypeOf(r)].join()`: "true,true,RegExp,2,true,gu,true",
		`class R extends RegExp { twice(s: string) { return this.test(s + s) } }; const r = new R("^\\p{L}{2}$", "u"); return [r instanceof R, r instanceof RegExp, r.twice("é")].join()`:                                "true,true,true",
		`return [..."aé1".matchAll(/\p{L}/gu)].length + "a-b".split(/\p{Pd}/u).join()`:                                                                                                                                   "2a,b",
		`const f = (): any => /[\p{Emoji}]/u; try { return f().source } catch (e) { return "later: " + e.message }`:                                                                                                      `later: Invalid regular expression: \p{Emoji} is not known here`,
		`const text = (n: number) => { const f = (s: string) => { const g = () => s.match(/\p{L}+/u)![0]; return g() }; return f("1é" + n) }; return text(2)`:                                                            "é",
	} {
		if got := evaluate(t, nil, body); got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
}

// TestSpellPattern holds each property against Go's own word for every character.
func TestSpellPattern(t *testing.T) {
	vm := goja.New()
	for name, in := range map[string]func(rune) bool{
		"L":            func(r rune) bool { return unicode.Is(unicode.L, r) },
		"Lu":           func(r rune) bool { return unicode.Is(unicode.Lu, r) },
		"White_Space":  unicode.IsSpace,
		"Script=Latin": func(r rune) bool { return unicode.Is(unicode.Latin, r) },
		"Any":          func(rune) bool { return true },
		"ASCII":        func(r rune) bool { return r < 0x80 },
		"gc=Nd":        unicode.IsDigit,
	} {
		for _, p := range []string{"p", "P"} {
			text, err := SpellPattern(`^\` + p + "{" + name + "}$")
			if err != nil {
				t.Fatal(err)
			}
			re, err := vm.New(vm.Get("RegExp"), vm.ToValue(text), vm.ToValue("u"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			test, _ := goja.AssertFunction(re.Get("test"))
			for r := rune(0); r < 0x20000; r += 7 {
				if 0xd800 <= r && r < 0xe000 {
					continue // a half of a character is no text of Go's
				}
				got, err := test(re, vm.ToValue(string(r)))
				if err != nil || got.ToBoolean() != (in(r) == (p == "p")) {
					t.Fatalf("\\%s{%s} of %U: %v %v", p, name, r, got, err)
				}
			}
		}
	}
	for _, bad := range []string{`\p{}`, `\p{l}`, `\p{Script=}`, `\p{Greek}`, `\p{=L}`, `\p{gc=Script}`, `[\P{Nope}]`, `\p{L`} {
		if text, err := SpellPattern(bad); err == nil {
			t.Errorf("%s became %q", bad, text)
		}
	}
}

// FuzzSpellPattern: what is not a property stays as it is, and no pattern makes it fail.
func FuzzSpellPattern(f *testing.F) {
	for _, s := range []string{`a\p{L}[^\P{Nd}\]]`, `\\p{L}`, `\`, `[[\p{Lu}`, `\p{Any}\P{Any}`, "\\p{\x00}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := SpellPattern(s)
		if err == nil && !strings.Contains(s, `\p{`) && !strings.Contains(s, `\P{`) && text != s {
			t.Errorf("%q became %q", s, text)
		}
	})
}
