package bridge

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// schema is the protocol's own description of one version.
type schema struct {
	defs     map[string]json.RawMessage
	requests map[string]string // method: definition of its params
	results  map[string]string // method: definition of its result

	mu       sync.Mutex
	resolved map[string]*jsonschema.Resolved
}

var schemas = sync.OnceValues(func() (map[int]*schema, error) {
	all := map[int]*schema{}
	for v := acp.Version1; v <= acp.Version2; v++ {
		text, err := os.ReadFile(fmt.Sprintf("../testdata/schema/v%d.json", v))
		if err != nil {
			return nil, err
		}
		var file struct {
			Defs map[string]json.RawMessage `json:"$defs"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			return nil, err
		}
		s := &schema{defs: file.Defs, requests: map[string]string{}, results: map[string]string{}, resolved: map[string]*jsonschema.Resolved{}}
		for name, def := range file.Defs {
			var d struct {
				Method string `json:"x-method"`
			}
			switch {
			case json.Unmarshal(def, &d) != nil || d.Method == "":
			case strings.HasSuffix(name, "Response"):
				s.results[d.Method] = name
			default:
				s.requests[d.Method] = name
			}
		}
		all[v] = s
	}
	return all, nil
})

var schemaRef = regexp.MustCompile(`"#/\$defs/([^"]+)"`)

// check validates a value by a definition. Only what that needs is resolved: all
// of it takes seconds.
func (s *schema) check(def string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resolved[def]
	if r == nil {
		needed := map[string]json.RawMessage{}
		s.collect(def, needed)
		whole, err := json.Marshal(map[string]any{"$ref": "#/$defs/" + def, "$defs": needed})
		if err != nil {
			return err
		}
		var parsed jsonschema.Schema
		if err := json.Unmarshal(whole, &parsed); err != nil {
			return err
		}
		if r, err = parsed.Resolve(nil); err != nil {
			return err
		}
		s.resolved[def] = r
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	return r.Validate(v)
}

func (s *schema) collect(def string, into map[string]json.RawMessage) {
	if _, known := into[def]; known {
		return
	}
	into[def] = s.defs[def]
	for _, m := range schemaRef.FindAllSubmatch(s.defs[def], -1) {
		s.collect(string(m[1]), into)
	}
}

// judge tells lines that Belay has composed or changed from those that it has
// passed on, and holds the former against the schema (acceptance 19).
type judge struct {
	*testing.T
	version int
	said    map[string]bool   // lines of the peers, without their ids
	asked   map[string]string // hearer and id: method of what it was asked
	judged  int
}

func newJudge(t *testing.T) *judge {
	return &judge{T: t, said: map[string]bool{}, asked: map[string]string{}}
}

// bare is the line without its id, and the message.
func bare(line string) (string, jsonrpc.Envelope, bool) {
	var e jsonrpc.Envelope
	if err := jsonrpc.Parse([]byte(line), &e); err != nil {
		return line, e, false
	}
	if !e.IDAt.Ok() {
		return line, e, true
	}
	return line[:e.IDAt.Start] + line[e.IDAt.End:], e, true
}

// hear notes a line that a peer has said.
func (j *judge) hear(who byte, line string) {
	rest, e, ok := bare(line)
	j.said[rest] = true
	if !ok {
		return
	}
	if e.Kind == jsonrpc.Request {
		j.asked[string(other(who))+e.ID.Key()+"<"] = e.Method
	}
	if who == 'a' && e.Kind == jsonrpc.Response && j.version == 0 {
		j.version = acp.ReadHello(e.Result.Of([]byte(line))).Version
	}
}

func other(who byte) byte {
	if who == 'a' {
		return 'e'
	}
	return 'a'
}

// look judges a line that a peer has got.
func (j *judge) look(who byte, line string) {
	j.Helper()
	rest, e, ok := bare(line)
	if !ok {
		j.Errorf("%c got a line that is no message: %s", who, line)
		return
	}
	if e.Kind == jsonrpc.Request {
		j.asked[string(who)+e.ID.Key()] = e.Method
	}
	if j.said[rest] {
		return
	}
	all, err := schemas()
	if err != nil {
		j.Fatal(err)
	}
	s := all[j.version]
	if s == nil {
		return
	}
	var def string
	value := e.Params
	switch {
	case e.IsError():
		def, value = "Error", e.Error
	case e.Kind == jsonrpc.Response:
		def, value = s.results[j.asked[string(other(who))+e.ID.Key()+"<"]], e.Result
	default:
		def = s.requests[e.Method]
	}
	if def == "" && e.Method != acp.NoticeCancelRequestSeed {
		j.Errorf("%c got a line of which the schema knows nothing: %s", who, line)
		return
	}
	if def == "" {
		return
	}
	j.judged++
	if err := s.check(def, value.Of([]byte(line))); err != nil {
		j.Errorf("%c got %s\nwhich is no %s: %v", who, line, def, err)
	}
}
