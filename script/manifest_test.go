package script

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

const goodManifest = `{"id":"read_feeds","displayName":"Read feeds","description":"Counts entries.","icon":"dot","color":"systemOrange","unknown":[1],
	"parameters":[{"name":"feeds","type":"array","description":"Feed addresses","required":true},{"name":"limit","type":"number","required":false},
	{"name":"deep","type":"boolean"},{"name":"n","type":"integer"},{"name":"o","type":"object"},{"name":"s","type":"string"}]}`

// TestManifest reads what the guide describes (AT-40 to AT-47).
func TestManifest(t *testing.T) {
	m, err := ParseManifest([]byte(goodManifest))
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "read_feeds" || m.DisplayName != "Read feeds" || m.RequireApproval || len(m.Parameters) != 6 || !m.Parameters[0].Required {
		t.Errorf("read %+v", m)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(m.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Resolve(nil); err != nil {
		t.Fatal(err)
	}
	if schema.Properties["limit"].Type != "number" || len(schema.Required) != 1 || schema.AdditionalProperties == nil || schema.Properties["feeds"].Items == nil {
		t.Errorf("schema %s", m.Schema())
	}
}

// TestManifestRefused names the field that is wrong.
func TestManifestRefused(t *testing.T) {
	for _, c := range [][2]string{
		{`{`, "unexpected EOF"},
		{"{\n\"id\": 3,\n}", "line 3"},
		{`[]`, "must be a JSON object"},
		{`{} {}`, "behind the object"},
		{`{"id":7}`, "id must be a string, not number"},
		{`{"description":"d","parameters":[]}`, "id is missing"},
		{`{"id":"a b","description":"d","parameters":[]}`, `id "a b"`},
		{`{"id":"` + strings.Repeat("x", 65) + `","description":"d","parameters":[]}`, "1 to 64"},
		{`{"id":"a","parameters":[]}`, "description is missing"},
		{`{"id":"a","description":"d"}`, "parameters is missing"},
		{`{"id":"a","description":"d","parameters":{}}`, "parameters must be an array"},
		{`{"id":"a","description":"d","parameters":[{"type":"string"}]}`, "parameters[0].name is missing"},
		{`{"id":"a","description":"d","parameters":[{"name":"x","type":"date"}]}`, `parameters[0].type "date"`},
		{`{"id":"a","description":"d","parameters":[{"name":"x","type":"string"},{"name":"x","type":"string"}]}`, "is that of parameters[0] too"},
		{`{"id":"a","description":"d","parameters":[],"requireApproval":"yes"}`, "requireApproval must be a boolean"},
		{`{"id":"a","description":"d","parameters":[` + strings.Repeat(`{"name":"x","type":"string"},`, 300) + `{"name":"y"}]}`, "at most 256"},
	} {
		text, want := c[0], c[1]
		if _, err := ParseManifest([]byte(text)); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want %q in it", text, err, want)
		}
	}
}

// TestParams refuses what does not match before any script code runs (AT-57).
func TestParams(t *testing.T) {
	m, err := ParseManifest([]byte(goodManifest))
	if err != nil {
		t.Fatal(err)
	}
	large := `{"feeds":["` + strings.Repeat("x", MaxParams) + `"]}`
	for _, c := range [][2]string{
		{`{"feeds":[],"limit":1.5,"deep":true,"n":1.0,"o":{},"s":""}`, ""},
		{`{"feeds":[],"limit":2}`, ""},
		{`{}`, `"feeds" is missing`},
		{`[]`, "one JSON object"},
		{`null`, "one JSON object"},
		{``, "one JSON object"},
		{`{"feeds":[]} 1`, "one JSON object"},
		{`{"feeds":"x"}`, `"feeds" must be of type array, it is string`},
		{`{"feeds":null}`, "it is null"},
		{`{"feeds":[],"n":1.5}`, `"n" must be of type integer, it is number`},
		{`{"feeds":[],"z":1}`, `no parameter "z"`},
		{large, "at most"},
	} {
		text, want := c[0], c[1]
		err := m.CheckParams([]byte(text))
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrParams) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: error %v, want %q in it", text, err, want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(goodManifest), []byte(`{"feeds":[]}`))
	f.Fuzz(func(t *testing.T, text, params []byte) {
		m, err := ParseManifest(text)
		if err != nil {
			return
		}
		if !json.Valid(m.Schema()) {
			t.Errorf("schema %q", m.Schema())
		}
		if m.CheckParams(params) == nil && !json.Valid(params) {
			t.Errorf("took %q", params)
		}
	})
}

func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"success":true,"output":{"assistantParts":["a",{"type":"image","base64":"aGk="}]}}`))
	f.Add([]byte(`{"success":false,"message":"m","output":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := parseResult(text)
		if len(r.Assistant)+len(r.User) > MaxParts {
			t.Errorf("%d parts", len(r.Assistant)+len(r.User))
		}
		for _, p := range r.Assistant {
			if p.Text != "" && p.Image != nil {
				t.Errorf("part %+v is both", p)
			}
		}
	})
}
