package jsonrpc

import (
	"errors"
	"strings"
	"testing"
)

// MCP-G6, MCP-G7: all of these are different ids, as values and as keys.
func TestIDsKeepTypeAndText(t *testing.T) {
	texts := []string{
		`1`, `"1"`, `1.0`, `1e0`, `1E0`, `1152921504606846976`, `1152921504606846977`, `null`, `"null"`,
		`0`, `-0`, `"0"`, `""`, `"a\"b"`, `"a"`, `"A"`, `"\ud800"`, `"\ud801"`, `"�"`, `" 1"`,
	}
	values, keys := map[ID]string{{}: "absent"}, map[string]string{ID{}.Key(): "absent"}
	for _, text := range texts {
		id, err := ParseID([]byte(" " + text + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if id.Raw() != text || string(id.AppendTo(nil)) != text {
			t.Errorf("%s is echoed as %s", text, id.Raw())
		}
		if other, dup := values[id]; dup {
			t.Errorf("%s == %s", text, other)
		}
		if other, dup := keys[id.Key()]; dup {
			t.Errorf("%s and %s share the key %q", text, other, id.Key())
		}
		values[id], keys[id.Key()] = text, text
	}
}

// MCP-G7: two spellings of one string are one key, each with its own echo.
func TestIDSpellingsShareAKey(t *testing.T) {
	for _, same := range [][]string{
		{`"a"`, `"\u0061"`},
		{`"a/b"`, `"a\/b"`},
		{`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`},
		{`"\t\n\"\\"`, `"\u0009\u000a\u0022\u005c"`},
	} {
		first, _ := ParseID([]byte(same[0]))
		for _, text := range same {
			id, err := ParseID([]byte(text))
			if err != nil || id.Key() != first.Key() || !id.Same(first) || id.Raw() != text {
				t.Errorf("%s: %v, key %q, want %q", text, err, id.Key(), first.Key())
			}
		}
	}
}

func TestParseIDRefuses(t *testing.T) {
	for text, want := range map[string]error{
		``: ErrSyntax, `x`: ErrSyntax, `1 2`: ErrSyntax, `01`: ErrSyntax, `"a`: ErrSyntax, `+1`: ErrSyntax,
		`{}`: ErrID, `[1]`: ErrID, `true`: ErrID, `false`: ErrID, "\"\xff\"": ErrID,
		`"` + strings.Repeat("a", MaxIDLen-1) + `"`: ErrID,
		strings.Repeat("1", MaxIDLen+1):             ErrID,
	} {
		if id, err := ParseID([]byte(text)); !errors.Is(err, want) || !id.IsZero() {
			t.Errorf("%.40q: %v, %v", text, id, err)
		}
	}
	if _, err := ParseID([]byte(strings.Repeat("1", MaxIDLen))); err != nil {
		t.Errorf("id of exactly MaxIDLen bytes: %v", err)
	}
}

func TestIDKinds(t *testing.T) {
	for text, want := range map[string]IDKind{`null`: IDNull, `-1`: IDNumber, `"x"`: IDString} {
		id, err := ParseID([]byte(text))
		if err != nil || id.Kind() != want || id.IsZero() || id.IsNull() != (want == IDNull) {
			t.Errorf("%s: %v %v", text, id.Kind(), err)
		}
	}
	var absent ID
	if absent.Kind() != IDAbsent || !absent.IsZero() || absent == NullID() || absent.String() != "-" || string(absent.AppendTo(nil)) != "null" {
		t.Errorf("absent id: %v", absent)
	}
	if s, ok := StringID("a\"\n").Text(); !ok || s != "a\"\n" {
		t.Errorf("StringID: %q", s)
	}
	if id, err := ParseID([]byte(StringID("q\"\\").Raw())); err != nil || id != StringID("q\"\\") {
		t.Errorf("StringID does not round-trip: %v %v", id, err)
	}
	if StringID("b-1") == StringID("b-2") || StringID("b-1").Raw() != `"b-1"` {
		t.Error("StringID")
	}
}

// MCP-G6: minted ids are strings and never come twice.
func TestMinter(t *testing.T) {
	var m Minter
	if a, b := m.Next(), m.Next(); a != StringID("b-1") || b != StringID("b-2") {
		t.Errorf("%v %v", a, b)
	}
	other := Minter{Prefix: "x"}
	if id := other.Next(); id != StringID("x1") {
		t.Error(id)
	}
}
