package acp_test

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

// schemas are the definitions of one version, resolved when they are first asked
// for.
type schemas struct {
	root     map[string]json.RawMessage // $defs
	requests map[string]string          // method: definition of its params
	results  map[string]string          // method: definition of its result
	mu       sync.Mutex
	resolved map[string]*jsonschema.Resolved
}

var versions = sync.OnceValues(func() (map[int]*schemas, error) {
	all := map[int]*schemas{}
	for v := acp.Version1; v <= acp.Version2; v++ {
		s, err := readSchemas(fmt.Sprintf("testdata/schema/v%d.json", v))
		if err != nil {
			return nil, err
		}
		all[v] = s
	}
	return all, nil
})

func readSchemas(path string) (*schemas, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	s := &schemas{root: file.Defs, requests: map[string]string{}, results: map[string]string{}, resolved: map[string]*jsonschema.Resolved{}}
	for name, def := range file.Defs {
		var d struct {
			Method string `json:"x-method"`
		}
		if json.Unmarshal(def, &d) != nil || d.Method == "" {
			continue
		}
		if strings.HasSuffix(name, "Response") {
			s.results[d.Method] = name
		} else {
			s.requests[d.Method] = name
		}
	}
	return s, nil
}

func (s *schemas) check(def string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resolved[def]
	if r == nil {
		// Only what the definition needs: to resolve all of them takes seconds.
		needed := map[string]json.RawMessage{}
		s.collect(def, needed)
		whole, err := json.Marshal(map[string]any{"$ref": "#/$defs/" + def, "$defs": needed})
		if err != nil {
			return err
		}
		var schema jsonschema.Schema
		if err := json.Unmarshal(whole, &schema); err != nil {
			return err
		}
		if r, err = schema.Resolve(nil); err != nil {
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

var refs = regexp.MustCompile(`"#/\$defs/([^"]+)"`)

func (s *schemas) collect(def string, into map[string]json.RawMessage) {
	if _, known := into[def]; known {
		return
	}
	into[def] = s.root[def]
	for _, m := range refs.FindAllSubmatch(s.root[def], -1) {
		s.collect(string(m[1]), into)
	}
}

// judge knows what was asked on a connection, so that it knows what an answer has
// to look like. Guarded by its wire.
type judge struct {
	version int
	asked   map[string]string // direction and id: method
	judged  int
}

// look says what is wrong with a line; own: the library wrote it.
func (j *judge) look(mark, line string, own bool) string {
	var e jsonrpc.Envelope
	frame := []byte(line)
	if err := jsonrpc.Parse(frame, &e); err != nil {
		if own {
			return err.Error()
		}
		return "" // a test plays a bad peer
	}
	if j.asked == nil {
		j.asked = map[string]string{}
	}
	method := e.Method
	var def string
	other := map[string]string{"> ": "< ", "< ": "> "}[mark]
	value := e.Params
	switch e.Kind {
	case jsonrpc.Request:
		j.asked[mark+e.ID.Key()] = e.Method
	case jsonrpc.Response:
		method, value = j.asked[other+e.ID.Key()], e.Result
		if method == acp.MethodInitialize && !e.IsError() {
			j.version = acp.ReadHello(e.Result.Of(frame)).Version
		}
	case jsonrpc.Notification, jsonrpc.Unknown:
	}
	if !own || method == "" {
		return ""
	}
	version := j.version
	if method == acp.MethodInitialize && e.Kind == jsonrpc.Request {
		version = acp.ReadHello(e.Params.Of(frame)).Version
	}
	all, err := versions()
	if err != nil {
		return err.Error()
	}
	s := all[version]
	if s == nil {
		return ""
	}
	switch {
	case e.IsError():
		def, value = "Error", e.Error
	case e.Kind == jsonrpc.Response:
		def = s.results[method]
	default:
		def = s.requests[method]
	}
	if def == "" {
		return "" // not of the schema: the tests' own, or the first form
	}
	j.judged++
	if !value.Ok() {
		return "no value for " + def
	}
	if err := s.check(def, value.Of(frame)); err != nil {
		return def + ": " + err.Error()
	}
	return ""
}

// The judge itself must be able to say no.
func TestACP_19_schema_says_no(t *testing.T) {
	var j judge
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`,
		`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`,
	} {
		if why := j.look("> ", line, true); why != "" {
			t.Errorf("%s: %s", line, why)
		}
	}
	if why := j.look("< ", `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`, true); why != "" {
		t.Error(why)
	}
	if why := j.look("< ", `{"jsonrpc":"2.0","id":2,"result":{"stopReason":7}}`, true); why == "" {
		t.Error("a stop reason that is a number was accepted")
	}
	if why := j.look("> ", `{"jsonrpc":"2.0","method":"session/cancel","params":{}}`, true); why == "" {
		t.Error("a session/cancel without session was accepted")
	}
	if why := j.look("> ", `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":{}}}`, true); why == "" {
		t.Error("an id that is an object was accepted")
	}
}
