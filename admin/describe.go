package admin

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// common are the errors that any operation of /v1 may answer with, and those of
// one with a body.
var (
	common   = []int{400, 401, 403, 422, 429, 500, 503}
	withBody = []int{408, 413, 415}
)

// operation adds an operation that any of the permissions opens, with the errors
// that all have; none: everybody who is known may. The permissions are asked for
// before the body is read, and by the operation itself, which knows how far they
// reach.
func operation[I, O any](a *API, api huma.API, permissions []string, op huma.Operation, f func(context.Context, *I) (*O, error)) {
	a.opens[op.Method+" "+op.Path] = permissions
	if len(permissions) > 0 {
		op.Description = strings.TrimSpace(op.Description + "\n\nPermission: " + strings.Join(permissions, " or ") + ".")
	}
	op.Errors = append(slices.Clone(op.Errors), common...)
	if op.Method != http.MethodGet {
		op.Errors = append(op.Errors, withBody...)
		op.MaxBodyBytes = maxBody
	}
	slices.Sort(op.Errors)
	huma.Register(api, op, f)
}

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// object describes a JSON object that may have more members than are named.
func object(required []string, members map[string]*huma.Schema) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Properties: members, Required: required, AdditionalProperties: true}
}

// content is a description of a body of one type.
func content(kind string, s *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{kind: {Schema: s}}
}

// The schemas of what is written by hand.
var (
	textSchema   = &huma.Schema{Type: huma.TypeString}
	flagSchema   = &huma.Schema{Type: huma.TypeBoolean}
	numberSchema = &huma.Schema{Type: huma.TypeNumber}
	countSchema  = &huma.Schema{Type: huma.TypeInteger}
	nullText     = &huma.Schema{Type: huma.TypeString, Nullable: true}
	anySchema    = &huma.Schema{}

	// refusalSchema is the error form of the seed's families (ORC-33).
	refusalSchema = object([]string{"detail"}, map[string]*huma.Schema{"detail": {OneOf: []*huma.Schema{
		textSchema,
		{Type: huma.TypeArray, Items: object([]string{"type", "loc", "msg"}, map[string]*huma.Schema{
			"type": textSchema, "msg": textSchema, "loc": {Type: huma.TypeArray, Items: textSchema},
		})},
	}}})
	ambiguitySchema = object([]string{"detail", "candidates", "more"}, map[string]*huma.Schema{
		"detail": textSchema, "more": countSchema,
		"candidates": {Type: huma.TypeArray, Items: object([]string{"run", "name", "registered_at"}, map[string]*huma.Schema{
			"run": textSchema, "name": textSchema, "registered_at": numberSchema,
		})},
	})
)

// described is a door that huma does not serve.
type described struct {
	method, path, id, summary, note string
	tag                             string
	params                          []*huma.Param
	body                            *huma.Schema
	answers                         map[int]*huma.Response
}

// refusals are the answers of a door of the seed's families that says no.
func refusals(answers map[int]*huma.Response, codes ...int) map[int]*huma.Response {
	for _, code := range codes {
		schema := refusalSchema
		if code == http.StatusConflict {
			schema = ambiguitySchema
		}
		answers[code] = &huma.Response{Description: http.StatusText(code), Content: content(typeJSON, schema)}
	}
	return answers
}

// byHand are all doors that huma does not serve.
func byHand() []described {
	doors := []described{{
		method: http.MethodGet, path: "/openapi.json", id: "describe", tag: "description", summary: "This description",
		note:    "It needs no credentials.",
		answers: map[int]*huma.Response{200: {Description: "OpenAPI 3.1", Content: content("application/openapi+json", object(nil, nil))}},
	}, {
		method: http.MethodGet, path: "/v1/events", id: "watch-events", tag: "events", summary: "Stream events of runs, receipts and approvals",
		note: "Server-sent events: the type as event, the event's JSON as data, and an id. Last-Event-ID goes on behind the event with that id. An event lost says that some are missing, and how many (0: nobody knows). notifications/cancelled is the notice that MCP sessions get of a cancel, of the runs that one may see.",
		params: []*huma.Param{
			{Name: "Last-Event-ID", In: "header", Schema: textSchema},
			{Name: "owner", In: "query", Schema: textSchema},
			{Name: "server", In: "query", Schema: textSchema},
			{Name: "kind", In: "query", Schema: &huma.Schema{Type: huma.TypeArray, Items: textSchema}},
			{Name: "label", In: "query", Schema: &huma.Schema{Type: huma.TypeArray, Items: textSchema}},
			{Name: "under", In: "query", Schema: textSchema},
		},
		answers: map[int]*huma.Response{200: {Description: "The stream", Content: content("text/event-stream", textSchema)}},
	}}
	for _, prefix := range []string{seedPrefix, releasedPrefix, newestPrefix} {
		doors = append(doors, family(prefix)...)
	}
	frame := object([]string{"method"}, map[string]*huma.Schema{"jsonrpc": textSchema, "method": textSchema, "params": anySchema, "id": anySchema})
	for _, path := range []string{"/protocol/notifications", "/notifications"} {
		doors = append(doors, described{
			method: http.MethodPost, path: path, id: strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"), tag: "json-rpc",
			summary: "Take a notifications/cancelled without a session", body: frame,
			answers: refusals(map[int]*huma.Response{200: {Description: "Taken, or nothing that is meant for here", Content: content(typeJSON, anySchema)}},
				400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
		})
	}
	return append(doors, described{
		method: http.MethodPost, path: "/rpc", id: "rpc", tag: "json-rpc", summary: "Take a notifications/cancelled as a JSON-RPC message", body: frame,
		answers: refusals(map[int]*huma.Response{
			200: {Description: "The answer to a message with an id", Content: content(typeJSON, object([]string{"jsonrpc", "id"}, map[string]*huma.Schema{
				"jsonrpc": textSchema, "id": anySchema, "result": anySchema,
				"error": object([]string{"code", "message"}, map[string]*huma.Schema{"code": countSchema, "message": textSchema}),
			}))},
			202: {Description: "A message without an id was taken"},
		}, 401, 408, 413, 415, 422, 429, 503),
	})
}

// tagOrchestrate marks the doors of the seed's families.
const tagOrchestrate = "orchestrate"

// family is the two doors of one of the seed's prefixes.
func family(prefix string) []described {
	name := strings.ReplaceAll(strings.Trim(prefix, "/"), "/", "-")
	cancelled := object([]string{"status", "requestId", "reason"}, map[string]*huma.Schema{
		"status": {Type: huma.TypeString, Enum: []any{statusCancelled, statusQueued}}, "requestId": textSchema, "reason": nullText,
		"run": nullText, "affected": flagSchema, "pending": flagSchema, "work": nullText, "verdict": nullText, "outcome": textSchema, "stored": flagSchema,
	})
	status := object([]string{"name", "registered_at", "cancelled"}, map[string]*huma.Schema{
		"name": nullText, "registered_at": numberSchema, "cancelled": flagSchema,
		"cancelled_at": numberSchema, "cancel_reason": nullText,
		"run": textSchema, "request_id": anySchema, "protocol": nullText, "kind": textSchema, "parent": nullText, "outcome": textSchema,
		"work": textSchema, "verdict": nullText, "cause": textSchema, "finished_at": numberSchema, "late_result": flagSchema, "owner": textSchema,
	})
	return []described{{
		method: http.MethodPost, path: prefix + "cancel", id: name + "-cancel", tag: tagOrchestrate,
		summary: "Cancel a run by its id or its protocol's id",
		params:  []*huma.Param{{Name: "Idempotency-Key", In: "header", Schema: textSchema}},
		body: object(nil, map[string]*huma.Schema{
			"requestId": textSchema, "request_id": textSchema, "reason": nullText, "wait": numberSchema, "escalate": flagSchema,
		}),
		answers: refusals(map[int]*huma.Response{200: {Description: "Found and cancelled, or queued", Content: content(typeJSON, cancelled)}},
			401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
	}, {
		method: http.MethodGet, path: prefix + "status/{request_id}", id: name + "-status", tag: tagOrchestrate, summary: "How a run stands",
		params: []*huma.Param{{Name: "request_id", In: "path", Required: true, Schema: textSchema}},
		answers: refusals(map[int]*huma.Response{200: {Description: "The run", Content: content(typeJSON, status)}},
			401, 403, 404, 409, 429, 503),
	}}
}

// describeByHand adds the doors that huma does not serve to the description; the
// families only where they are not switched off (ORC-65).
func describeByHand(doc *huma.OpenAPI, families bool) {
	for _, d := range byHand() {
		if d.tag == tagOrchestrate && !families {
			continue
		}
		op := &huma.Operation{
			OperationID: d.id, Method: d.method, Path: d.path, Tags: []string{d.tag}, Summary: d.summary, Description: d.note,
			Parameters: d.params, Responses: make(map[string]*huma.Response),
		}
		if d.path == "/openapi.json" {
			op.Security = []map[string][]string{}
		}
		if d.body != nil {
			op.RequestBody = &huma.RequestBody{Required: true, Content: content(typeJSON, d.body)}
		}
		for code, answer := range d.answers {
			op.Responses[strconv.Itoa(code)] = answer
		}
		doc.AddOperation(op)
	}
	problems := doc.Paths["/v1/whoami"].Get.Responses["401"].Content
	events := doc.Paths["/v1/events"].Get.Responses
	for _, code := range []int{400, 401, 403, 429, 503} {
		events[strconv.Itoa(code)] = &huma.Response{Description: http.StatusText(code), Content: problems}
	}
	list := doc.Paths["/v1/receipts"].Get.Responses["200"].Content
	list["text/csv"] = &huma.MediaType{Schema: textSchema}
	list["application/x-ndjson"] = &huma.MediaType{Schema: textSchema}
}

// complete adds what follows from the rest: a second success has the body of the
// first, and some codes come with headers.
func complete(doc *huma.OpenAPI) {
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			for pair, other := range map[string]string{"202": "200", "200": "201"} {
				if r, of := op.Responses[pair], op.Responses[other]; r != nil && of != nil && len(r.Content) == 0 && op.OperationID != "rpc" {
					r.Content, r.Headers = of.Content, of.Headers
					if pair == "202" {
						of.Headers = nil // what they point at is only looked for later
					}
				}
			}
			for code, name := range map[string]string{"401": "WWW-Authenticate", "429": "Retry-After", "503": "Retry-After"} {
				if r := op.Responses[code]; r != nil {
					r.Headers = map[string]*huma.Param{name: {Schema: textSchema}}
				}
			}
		}
	}
}
