package admin

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"mime"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/belayhq/belay"
)

// description is the served document, as a client reads it.
type description struct {
	*rig
	openAPI    string
	operations map[string]operationDoc // by method and path
	schemas    json.RawMessage
	ready      map[string]*jsonschema.Resolved // by the text of the schema
}

type operationDoc struct {
	Summary   string
	Security  *[]map[string][]string
	Responses map[string]struct {
		Content map[string]struct{ Schema json.RawMessage }
		Headers map[string]any
	}
}

func (r *rig) describe() *description {
	r.Helper()
	got := r.do("GET", "/openapi.json", "", "")
	if got.status != 200 {
		r.Fatal(got)
	}
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]operationDoc
		Components struct{ Schemas json.RawMessage }
	}
	// References stand where a schema alone has its definitions.
	text := strings.ReplaceAll(got.body, "#/components/schemas/", "#/$defs/")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		r.Fatal(err)
	}
	d := &description{rig: r, openAPI: doc.OpenAPI, operations: make(map[string]operationDoc), schemas: doc.Components.Schemas, ready: make(map[string]*jsonschema.Resolved)}
	for path, item := range doc.Paths {
		for method, op := range item {
			d.operations[strings.ToUpper(method)+" "+path] = op
		}
	}
	return d
}

// check compares an answer with the description of its operation.
func (d *description) check(operation string, got answer) {
	d.Helper()
	op, ok := d.operations[operation]
	if !ok {
		d.Errorf("%s is not described", operation)
		return
	}
	resp, ok := op.Responses[strconv.Itoa(got.status)]
	if !ok {
		d.Errorf("%s: %d is not described (%.200s)", operation, got.status, got.body)
		return
	}
	for name := range resp.Headers {
		if got.header.Get(name) == "" {
			d.Errorf("%s: %d without %s", operation, got.status, name)
		}
	}
	kind, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	body, ok := resp.Content[kind]
	switch {
	case got.body == "" && len(resp.Content) == 0:
	case !ok:
		d.Errorf("%s: %d has type %q, described are %v", operation, got.status, kind, slices.Collect(maps.Keys(resp.Content)))
	case strings.HasSuffix(kind, "json") && kind != "application/x-ndjson":
		if err := d.validate(body.Schema, got.body); err != nil {
			d.Errorf("%s: %d: %v\n%s", operation, got.status, err, got.body)
		}
	}
}

func (d *description) validate(schema json.RawMessage, body string) error {
	resolved, err := d.resolved(schema)
	if err != nil {
		return err
	}
	var v any
	return errors.Join(json.Unmarshal([]byte(body), &v), resolved.Validate(v))
}

func (d *description) resolved(schema json.RawMessage) (*jsonschema.Resolved, error) {
	if known := d.ready[string(schema)]; known != nil {
		return known, nil
	}
	root := `{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":` + string(d.schemas) + `,"allOf":[` + string(schema) + `]}`
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(root), &s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	d.ready[string(schema)] = resolved
	return resolved, err
}

// Every operation is asked for real, in most of the ways that it answers; each
// answer is what the served document says. Not one operation is left out.
func TestOpenAPI(t *testing.T) {
	r := newLeaseRig(t, Options{
		Latch: &Switch{}, Erase: eraser(nil), Export: exporter(nil), Commit: (&disk{}).commit,
	})
	d := r.describe()
	if !strings.HasPrefix(d.openAPI, "3.1") {
		t.Errorf("version %q", d.openAPI)
	}
	who := d.operations["GET /v1/whoami"].Responses["200"].Content["application/json"].Schema
	for _, wrong := range []string{`{}`, `{"name":7,"permissions":[],"inside":[]}`, `{"name":"n","permissions":null,"inside":[]}`, `{"name":"n","permissions":[],"inside":[],"more":1}`} {
		if d.validate(who, wrong) == nil {
			t.Fatalf("the validator takes %s", wrong)
		}
	}
	run := r.call("ann", `"x"`, with(&stopper{}))
	r.call("ann", `"y"`, func(s *belay.Spec) { s.Parent = run })
	r.call("ann", `"twice"`)
	r.call("ann", `"twice"`)
	over := r.call("ann", `"over"`)
	over.Finish(belay.Completed)
	id, none := run.ID().String(), belay.NewRunID().String()
	leased := into[registered](r, r.do("POST", "/v1/runs", "rt", `{"kind":"turn","name":"t"}`), 201).Run.ID.String()
	question := r.askThis(r.call("ann", `"ask"`), looks(func(context.Context) (string, error) { return "seen", nil }))
	broken := r.askThis(r.call("ann", `"broken"`), looks(func(context.Context) (string, error) { return "", io.ErrUnexpectedEOF }))
	bare := r.ask(r.call("ann", `"bare"`))
	asked := map[string]bool{}
	for _, tt := range []struct {
		operation, path, token, body string
		status                       int
	}{
		{"GET /openapi.json", "", "", "", 200},
		{"GET /v1/whoami", "", "op", "", 200},
		{"GET /v1/whoami", "", "", "", 401},
		{"GET /v1/whoami", "", "wrong", "", 401},
		{"GET /v1/runs", "?state=all&label=a%3Db", "op", "", 200},
		{"GET /v1/runs", "", "op", "", 200},
		{"GET /v1/runs", "?limit=0", "op", "", 422},
		{"GET /v1/runs", "?cursor=x", "op", "", 400},
		{"GET /v1/runs", "", "nothing", "", 403},
		{"GET /v1/runs/{id}", id, "op", "", 200},
		{"GET /v1/runs/{id}", leased, "rt", "", 200},
		{"GET /v1/runs/{id}", "x", "op", "", 404},
		{"POST /v1/runs", "", "rt", `{"kind":"turn","name":"t","lease":30,"labels":{"a":"b"},"deadline":"2999-01-01T00:00:00Z"}`, 201},
		{"POST /v1/runs", "", "rt", `{"kind":"x","name":"t"}`, 422},
		{"POST /v1/runs", "", "rt", `{"kind":"turn","name":"t","parent":"` + none + `"}`, 404},
		{"POST /v1/runs", "", "rt", `{`, 400},
		{"POST /v1/runs", "", "ann", `{"kind":"turn","name":"t"}`, 403},
		{"POST /v1/runs/{id}/heartbeat", leased, "rt", ``, 200},
		{"POST /v1/runs/{id}/heartbeat", leased, "rt2", ``, 404},
		{"POST /v1/runs/{id}/cancel", id, "op", `{"dry_run":true}`, 200},
		{"POST /v1/runs/{id}/cancel", leased, "rt", `{"reason":"r"}`, 202},
		{"POST /v1/runs/{id}/cancel", id, "op", `{"wait":0.01}`, 202},
		{"POST /v1/runs/{id}/cancel", over.ID().String(), "op", `{}`, 409},
		{"POST /v1/runs/{id}/cancel", none, "op", `{}`, 404},
		{"POST /v1/runs/{id}/heartbeat", leased, "rt", `{"lease":20}`, 200},
		{"POST /v1/runs/{id}/report", leased, "rt", `{"outcome":"x"}`, 422},
		{"POST /v1/runs/{id}/report", leased, "rt", `{"outcome":"cancelled","evidence":{"kind":"survivors","survivors":[{"pid":1,"command":"x"}]},"partial":"p"}`, 200},
		{"POST /v1/runs/{id}/report", leased, "rt", `{"outcome":"cancelled","evidence":{"kind":"handler_returned","remote":["h:1"]}}`, 200},
		{"POST /v1/runs/{id}/report", leased, "rt", `{"outcome":"cancelled"}`, 409},
		{"POST /v1/runs/{id}/heartbeat", leased, "rt", ``, 409},
		{"POST /v1/cancel", "", "op", `{"ids":["` + id + `"],"force":true}`, 202},
		{"POST /v1/cancel", "", "op", `{"states":["declined"]}`, 200},
		{"POST /v1/cancel", "", "op", `{}`, 400},
		{"GET /v1/receipts", "", "op", "", 200},
		{"GET /v1/receipts", "?format=csv", "op", "", 200},
		{"GET /v1/receipts", "?format=ndjson", "op", "", 200},
		{"GET /v1/receipts", "?format=csv&limit=3", "op", "", 400},
		{"GET /v1/receipts", "?format=xml", "op", "", 422},
		{"GET /v1/receipts/{id}", id, "op", "", 200},
		{"GET /v1/receipts/{id}", leased, "rt", "", 200},
		{"GET /v1/receipts/{id}", over.ID().String(), "op", "", 404},
		{"GET /v1/events", "", "nothing", "", 403},
		{"GET /v1/events", "?under=x", "op", "", 400},
		{"GET /v1/approvals", "", "boss", "", 200},
		{"GET /v1/approvals", "", "op", "", 403},
		{"POST /v1/approvals/{id}/preview", question, "boss", "", 200},
		{"POST /v1/approvals/{id}/preview", broken, "boss", "", 502},
		{"POST /v1/approvals/{id}/preview", bare, "boss", "", 501},
		{"POST /v1/approvals/{id}/preview", "x", "boss", "", 404},
		{"POST /v1/approvals/{id}/preview", question, "op", "", 403},
		{"POST /v1/approvals/{id}", question, "boss", `{"decision":"perhaps"}`, 422},
		{"POST /v1/approvals/{id}", question, "boss", `{"decision":"approve","reason":"r"}`, 200},
		{"POST /v1/approvals/{id}", question, "boss", `{"decision":"decline"}`, 409},
		{"POST /v1/approvals/{id}/preview", question, "boss", "", 409},
		{"POST /v1/approvals/{id}", "x", "boss", `{"decision":"decline"}`, 404},
		{"DELETE /v1/principals/{name}", "ann%2Fx", "op", "", 200},
		{"DELETE /v1/principals/{name}", "ann", "ann", "", 403},
		{"GET /v1/latch", "", "ann", "", 200},
		{"POST /v1/latch", "", "op", "", 202},
		{"POST /v1/latch", "", "boss", `{"reason":"again","wait":0}`, 202},
		{"POST /v1/runs", "", "rt", `{"kind":"turn","name":"t"}`, 503},
		{"DELETE /v1/latch", "", "boss", "", 403},
		{"DELETE /v1/latch", "?reason=over", "op", "", 200},
		{"POST /notifications", "", "op", notified(`"x"`), 200},
		{"POST /notifications", "", "op", `{`, 400},
		{"POST /protocol/notifications", "", "bob", notified(`"x"`), 403},
		{"POST /rpc", "", "bob", `{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":"x"}}`, 200},
		{"POST /rpc", "", "bob", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`, 202},
		{"POST /rpc", "", "", `{}`, 401},
	} {
		method, template, _ := strings.Cut(tt.operation, " ")
		path := template + tt.path
		if before, after, ok := strings.Cut(template, "{"); ok {
			_, after, _ = strings.Cut(after, "}")
			path = before + tt.path + after
		}
		got := r.do(method, path, tt.token, tt.body)
		if got.status != tt.status {
			t.Errorf("%s %s as %q: %d, want %d: %s", method, path, tt.token, got.status, tt.status, got.body)
			continue
		}
		d.check(tt.operation, got)
		asked[tt.operation] = true
	}
	for _, prefix := range []string{seedPrefix, releasedPrefix, newestPrefix} {
		r.familyAnswers(d, prefix, asked)
	}
	for name, op := range d.operations {
		if !asked[name] {
			t.Errorf("%s is described and was not asked for", name)
		}
		if op.Summary == "" {
			t.Errorf("%s has no summary", name)
		}
		open := op.Security != nil && len(*op.Security) == 0
		if open != (name == "GET /openapi.json") {
			t.Errorf("%s: security %v", name, op.Security)
		}
		for _, code := range []string{"401", "503"} {
			if _, ok := op.Responses[code]; !ok && !open {
				t.Errorf("%s: %s is not described", name, code)
			}
		}
	}
}

// familyAnswers asks the doors of one prefix.
func (r *rig) familyAnswers(d *description, prefix string, asked map[string]bool) {
	r.Helper()
	cancel, status := "POST "+prefix+"cancel", "GET "+prefix+"status/{request_id}"
	fresh := r.call("ann", `"`+prefix+`"`, with(&stopper{}))
	for _, tt := range []struct {
		token, body string
		status      int
	}{
		{"op", `{"requestId":"` + fresh.ID().String() + `","reason":"r"}`, 200},
		{"op", `{"requestId":"nobody"}`, 200},
		{"op", `{"requestId":"over"}`, 200},
		{"op", `{"requestId":7}`, 422},
		{"ann", `{}`, 403},
		{"", `{}`, 401},
	} {
		got := r.do("POST", prefix+"cancel", tt.token, tt.body)
		if got.status != tt.status {
			r.Errorf("%s: %d, want %d", cancel, got.status, tt.status)
		}
		d.check(cancel, got)
	}
	r.call("ann", `"`+prefix+`2"`)
	r.call("ann", `"`+prefix+`2"`)
	two := strings.ReplaceAll(prefix, "/", "%2F") + "2"
	for path, want := range map[string]int{fresh.ID().String(): 200, "nobody": 404, two: 409} {
		got := r.do("GET", prefix+"status/"+path, "op", "")
		if got.status != want {
			r.Errorf("%s %s: %d, want %d", status, path, got.status, want)
		}
		d.check(status, got)
	}
	got := r.do("POST", prefix+"cancel", "op", `{"requestId":"`+prefix+`2"}`)
	if d.check(cancel, got); got.status != 409 {
		r.Errorf("%s of two: %d", cancel, got.status)
	}
	asked[cancel], asked[status] = true, true
}

// What a server without these parts, one that is asked too often, and bodies of
// the wrong kind get is described, too.
func TestOpenAPIRefusals(t *testing.T) {
	r := newRig(t, Options{})
	d := r.describe()
	for operation, path := range map[string]string{
		"POST /v1/runs": "/v1/runs", "GET /v1/approvals": "/v1/approvals", "GET /v1/latch": "/v1/latch",
		"DELETE /v1/principals/{name}": "/v1/principals/x", "GET /v1/receipts": "/v1/receipts?format=csv",
	} {
		method, _, _ := strings.Cut(operation, " ")
		token, body := "op", ""
		if method == "POST" {
			token, body = "rt", `{"kind":"turn","name":"t"}`
		}
		if path == "/v1/approvals" {
			token = "boss"
		}
		got := r.do(method, path, token, body)
		if got.status != 501 {
			t.Errorf("%s: %d", operation, got.status)
		}
		d.check(operation, got)
	}
	limited := newLeaseRig(t, Options{Limiter: NewRates(0.01, 1), LeaseLimiter: NewRates(0.01, 1)})
	limited.api.calm = 0
	for operation := range d.operations {
		method, path, _ := strings.Cut(operation, " ")
		if method == "GET" || strings.Contains(path, "rpc") || strings.Contains(path, "notifications") {
			continue
		}
		path = strings.NewReplacer("{id}", "x", "{name}", "x").Replace(path)
		limited.do(method, path, "root", "")
		got := limited.do(method, path, "root", "")
		if got.status != 429 {
			t.Errorf("%s: %d, want 429", operation, got.status)
		}
		d.check(operation, got)
		if method != "POST" {
			continue
		}
		for want, headers := range map[int][]string{415: {"Content-Type", "text/plain"}, 413: nil} {
			body := "{}"
			if want == 413 {
				body = strings.Repeat(" ", maxBody+1)
			}
			got := r.do(method, path, "root", body, headers...)
			if got.status != want {
				t.Errorf("%s: %d, want %d", operation, got.status, want)
			}
			d.check(operation, got)
		}
	}
}

// A path that stands in the code and not in the description fails here.
func TestEveryRouteIsDescribed(t *testing.T) {
	d := newRig(t, Options{}).describe()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			path, _ := strconv.Unquote(lit.Value)
			path, _, _ = strings.Cut(path, "?")
			if len(path) < 2 || path[0] != '/' {
				return true
			}
			seen++
			if !slices.ContainsFunc(slices.Collect(maps.Keys(d.operations)), func(op string) bool {
				_, known, _ := strings.Cut(op, " ")
				return known == path || strings.HasPrefix(known, strings.TrimSuffix(path, "/")+"/") || strings.HasSuffix(known, path)
			}) {
				t.Errorf("%s: %s is not described", f.Name(), path)
			}
			return true
		})
	}
	if seen < 20 {
		t.Errorf("%d paths found in the code", seen)
	}
}

// eraser is an Erase that writes down whom.
func eraser(whom *[]string) func(context.Context, string) (any, error) {
	return func(_ context.Context, name string) (any, error) {
		if whom != nil {
			*whom = append(*whom, name)
		}
		return map[string]int{"runs": 1}, nil
	}
}

// exporter is an Export that writes down what was asked for.
func exporter(asked *[]HistoryQuery) func(context.Context, io.Writer, Format, HistoryQuery) error {
	return func(_ context.Context, w io.Writer, f Format, q HistoryQuery) error {
		if asked != nil {
			*asked = append(*asked, q)
		}
		_, err := io.WriteString(w, string(f)+"\n")
		return err
	}
}

// ORC-65: what is switched off is not described either, and everything else is.
func TestOpenAPIWithoutFamilies(t *testing.T) {
	on, off := newRig(t, Options{}).describe(), newRig(t, Options{NoOrchestrate: true}).describe()
	gone := 0
	for op := range on.operations {
		_, path, _ := strings.Cut(op, " ")
		family := false
		for _, prefix := range []string{seedPrefix, releasedPrefix, newestPrefix} {
			family = family || strings.HasPrefix(path, prefix)
		}
		if _, is := off.operations[op]; is == family {
			t.Errorf("%s described: %t", op, is)
		}
		if family {
			gone++
		}
	}
	if gone != 6 {
		t.Errorf("%d operations of the families", gone)
	}
}
