package rapdoor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
)

func TestReadForm(t *testing.T) {
	many := func(n int) string {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = fmt.Sprintf(`"f%d":{"type":"boolean"}`, i)
		}
		return `{"message":"m","requestedSchema":{"properties":{` + strings.Join(fields, ",") + `}}}`
	}
	enum := func(n int) string {
		return `{"message":"m","requestedSchema":{"required":["a"],"properties":{"a":{"type":"string","enum":["x"` + strings.Repeat(`,"x"`, n-1) + `]}}}}`
	}
	for name, tt := range map[string]struct {
		params string
		fields int // -1: refused
	}{
		"empty":              {`{}`, -1},
		"no schema":          {`{"message":"m"}`, -1},
		"message a number":   {`{"message":7,"requestedSchema":{}}`, -1},
		"twice":              {`{"message":"a","message":"b","requestedSchema":{}}`, -1},
		"another mode":       {`{"mode":"url","message":"m","requestedSchema":{}}`, -1},
		"mode no text":       {`{"mode":7,"message":"m","requestedSchema":{}}`, -1},
		"required no list":   {`{"message":"m","requestedSchema":{"required":"a"}}`, -1},
		"required, unknown":  {`{"message":"m","requestedSchema":{"required":["a"],"properties":{}}}`, -1},
		"required text":      {`{"message":"m","requestedSchema":{"required":["a"],"properties":{"a":{"type":"string"}}}}`, -1},
		"required number":    {`{"message":"m","requestedSchema":{"required":["a"],"properties":{"a":{"type":"number"}}}}`, -1},
		"required nonsense":  {`{"message":"m","requestedSchema":{"required":["a"],"properties":{"a":7}}}`, -1},
		"no values":          {`{"message":"m","requestedSchema":{"required":["a"],"properties":{"a":{"type":"string","enum":[]}}}}`, -1},
		"optional text":      {`{"mode":"form","message":"m","requestedSchema":{"properties":{"a":{"type":"string"}}}}`, 0},
		"a list of several":  {`{"message":"m","requestedSchema":{"properties":{"a":{"type":"array","items":{"enum":["x"]}}}}}`, 0},
		"no properties":      {`{"message":"m","requestedSchema":{}}`, 0},
		"eight":              {many(8), 8},
		"nine":               {many(9), -1},
		"as many as can be":  {enum(255), 1},
		"one value too many": {enum(256), -1},
	} {
		f, err := readForm([]byte(tt.params), jsonrpc.Span{Start: 0, End: len(tt.params)})
		if got := len(f.fields); err == nil && got != tt.fields || (err != nil) != (tt.fields < 0) {
			t.Errorf("%s: %d fields, %v", name, got, err)
		}
	}
	const named = `{"message":"m","requestedSchema":{"properties":{"a":{"type":"string","enum":["x","","z"],"enumNames":["Ex"]}}}}`
	f, err := readForm([]byte(named), jsonrpc.Span{Start: 0, End: len(named)})
	if err != nil || fmt.Sprint(f.fields[0].labels) != "[Ex (empty) z]" || string(f.fields[0].values[1]) != `""` {
		t.Errorf("%+v, %v", f, err)
	}
}

func FuzzReadForm(f *testing.F) {
	f.Add(`{"message":"m","requestedSchema":{"required":["a"],"properties":{"a":{"type":"string","enum":["x","y"]},"b":{"type":"boolean"}}}}`)
	f.Add(`{"mode":"form","message":"\ud800","requestedSchema":{"properties":{"\u0061":{"type":"string","oneOf":[{"const":"1","title":"one"}]}}}}`)
	f.Add(`{"message":"","requestedSchema":{"properties":{"":{"type":"string","oneOf":[{}]}}}}`)
	f.Fuzz(func(t *testing.T, params string) {
		if !json.Valid([]byte(params)) {
			return
		}
		form, err := readForm([]byte(params), jsonrpc.Span{Start: 0, End: len(params)})
		if err != nil {
			return
		}
		for i, one := range form.fields {
			if len(one.labels) != len(one.values) || len(one.labels) == 0 || form.prompt(i) == "" {
				t.Errorf("%+v", one)
			}
			for j, v := range one.values {
				if !json.Valid(v) || one.labels[j] == "" {
					t.Errorf("value %q, label %q", v, one.labels[j])
				}
			}
		}
	})
}

// AT-54: a report with the id of an earlier one takes its place, one without an id
// stands by itself, and the progress of other servers is one line.
func TestAT54_TheSameIDReplaces(t *testing.T) {
	s := &sheet{}
	for _, x := range []struct {
		id, text string
		alone    bool
	}{{"p", "1", false}, {"", "a", true}, {"p", "2", false}, {"", "b", true}, {"q", "3", false}, {"p", "4", false}} {
		s.put(report{ID: x.id, Message: x.text}, x.alone)
	}
	if got := fmt.Sprint(s.Reports); got != "[{p 4} { a} { b} {q 3}]" {
		t.Error(got)
	}
	for i := range 10 * maxReports {
		s.put(report{Message: fmt.Sprint(i)}, true)
	}
	if len(s.Reports) != maxReports || s.Reports[maxReports-1].Message != fmt.Sprint(10*maxReports-1) {
		t.Errorf("%d reports, the last %v", len(s.Reports), s.Reports[len(s.Reports)-1])
	}
	s = &sheet{}
	for _, text := range []string{"1", "2"} {
		s.put(report{Message: text}, false)
	}
	if got := fmt.Sprint(s.Reports); got != "[{ 2}]" {
		t.Error(got)
	}
}
