package script

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/rangetable"
)

// maxPattern bounds a regular expression in bytes once its properties are spelled out.
const maxPattern = 1 << 20

var errPattern = fmt.Errorf("its \\p{…} come to more than %d bytes", maxPattern)

// SpellPattern writes out the characters for which \p{…} and \P{…} stand in a regular
// expression with the flag u. The interpreter does not know them, and would take
// them for the letters that they are written with. The error is the mistake of a
// property that does not exist or is not known here. It may be called concurrently.
func SpellPattern(pattern string) (string, error) {
	var out strings.Builder
	inClass := false
	for len(pattern) > 0 {
		c := pattern[0]
		if c != '\\' || len(pattern) == 1 {
			if c == '[' || c == ']' {
				inClass = c == '['
			}
			out.WriteByte(c)
			pattern = pattern[1:]
			continue
		}
		name, end, found := "", 0, false
		if c = pattern[1]; c == 'p' || c == 'P' {
			name, found = strings.CutPrefix(pattern[2:], "{")
			if end = strings.IndexByte(name, '}'); found && end < 0 {
				return "", errors.New("a \\" + string(c) + "{ has no end")
			}
		}
		if !found {
			out.WriteString(pattern[:2])
			pattern = pattern[2:]
			continue
		}
		both, err := spell(name[:end])
		if err != nil {
			return "", err
		}
		class := both[0]
		if c == 'P' {
			class = both[1]
		}
		if inClass {
			class = class[1 : len(class)-1]
		}
		out.WriteString(class)
		if out.Len() > maxPattern {
			return "", errPattern
		}
		pattern = name[end+1:]
	}
	return out.String(), nil
}

// spelled are the classes of properties that were asked for: those with it and those
// without it. There are no more than properties.
var spelled sync.Map

// spell gives the classes of one property.
func spell(name string) ([2]string, error) {
	known, _ := spelled.Load(name)
	if both, ok := known.([2]string); ok {
		return both, nil
	}
	t, err := property(name)
	if err != nil {
		return [2]string{}, err
	}
	with, without := &strings.Builder{}, &strings.Builder{}
	next := rune(0) // nothing below it is left to write
	begin, end := rune(-1), rune(-2)
	flush := func() {
		if begin < 0 {
			return
		}
		writeRange(with, begin, end)
		writeRange(without, next, begin-1)
		next = end + 1
	}
	rangetable.Visit(t, func(r rune) {
		if r != end+1 {
			flush()
			begin = r
		}
		end = r
	})
	flush()
	writeRange(without, next, unicode.MaxRune)
	both := [2]string{"[" + with.String() + "]", "[" + without.String() + "]"}
	spelled.Store(name, both)
	return both, nil
}

func writeRange(b *strings.Builder, from, to rune) {
	switch {
	case from > to:
	case from == to:
		fmt.Fprintf(b, `\u{%x}`, from)
	default:
		fmt.Fprintf(b, `\u{%x}-\u{%x}`, from, to)
	}
}

// property finds the characters of what stands between the braces: a general
// category, Script=…, or a binary property.
func property(name string) (*unicode.RangeTable, error) {
	key, value, pair := strings.Cut(name, "=")
	if !pair {
		key, value = "General_Category", name
	}
	switch key {
	case "General_Category", "gc":
		if long, ok := unicode.CategoryAliases[value]; ok {
			value = long
		}
		if t, ok := unicode.Categories[value]; ok {
			return t, nil
		}
	case "Script", "sc":
		if t, ok := unicode.Scripts[value]; ok {
			return t, nil
		}
	}
	if !pair {
		if t, ok := binary()[name]; ok {
			return t, nil
		}
	}
	return nil, fmt.Errorf("\\p{%.80s} is not known here", name)
}

// binary are the binary properties of ECMAScript that Go's tables hold, or that
// follow from them as Unicode's annex 44 says.
var binary = sync.OnceValue(func() map[string]*unicode.RangeTable {
	merged := rangetable.Merge
	without := func(t *unicode.RangeTable, not ...*unicode.RangeTable) *unicode.RangeTable {
		var rest []rune
		rangetable.Visit(t, func(r rune) {
			if !unicode.In(r, not...) {
				rest = append(rest, r)
			}
		})
		return rangetable.New(rest...)
	}
	all := &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0, Hi: 0xffff, Stride: 1}}, R32: []unicode.Range32{{Lo: 0x10000, Hi: unicode.MaxRune, Stride: 1}}}
	lower, upper := merged(unicode.Ll, unicode.Other_Lowercase), merged(unicode.Lu, unicode.Other_Uppercase)
	start := without(merged(unicode.L, unicode.Nl, unicode.Other_ID_Start), unicode.Pattern_Syntax, unicode.Pattern_White_Space)
	t := map[string]*unicode.RangeTable{
		"Any":         all,
		"ASCII":       {R16: []unicode.Range16{{Lo: 0, Hi: unicode.MaxASCII, Stride: 1}}},
		"Assigned":    without(all, unicode.Categories["Cn"]),
		"Alphabetic":  merged(lower, upper, unicode.Lt, unicode.Lm, unicode.Lo, unicode.Nl, unicode.Other_Alphabetic),
		"Lowercase":   lower,
		"Uppercase":   upper,
		"Cased":       merged(lower, upper, unicode.Lt),
		"Math":        merged(unicode.Sm, unicode.Other_Math),
		"ID_Start":    start,
		"ID_Continue": without(merged(start, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue), unicode.Pattern_Syntax, unicode.Pattern_White_Space),
	}
	for _, same := range []string{
		"ASCII_Hex_Digit", "Bidi_Control", "Dash", "Deprecated", "Diacritic", "Extender", "Hex_Digit", "IDS_Binary_Operator",
		"IDS_Trinary_Operator", "Ideographic", "Join_Control", "Logical_Order_Exception", "Noncharacter_Code_Point", "Pattern_Syntax",
		"Pattern_White_Space", "Quotation_Mark", "Radical", "Regional_Indicator", "Sentence_Terminal", "Soft_Dotted",
		"Terminal_Punctuation", "Unified_Ideograph", "Variation_Selector", "White_Space",
	} {
		t[same] = unicode.Properties[same]
	}
	for short, long := range map[string]string{
		"AHex": "ASCII_Hex_Digit", "Alpha": "Alphabetic", "Hex": "Hex_Digit", "Lower": "Lowercase", "Upper": "Uppercase", "space": "White_Space",
		"IDS": "ID_Start", "IDC": "ID_Continue", "QMark": "Quotation_Mark", "STerm": "Sentence_Terminal", "Ideo": "Ideographic",
	} {
		t[short] = t[long]
	}
	return t
})
