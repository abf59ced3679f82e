package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belayhq/belay"
)

// viaREST is the door's name in cancellations that came by /v1.
const viaREST = "rest"

// newV1 makes the handler of /v1 and /openapi.json.
func (a *API) newV1() http.Handler {
	mux := http.NewServeMux()
	c := huma.DefaultConfig("Belay", a.o.Version)
	c.Info.Description = "Runs, and how they are stopped."
	c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", nil
	c.Transformers = []huma.Transformer{noEcho}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}
	c.Security = []map[string][]string{{"bearer": {}}}
	api := humago.New(mux, c)
	a.registerRuns(api)
	a.registerCancels(api)
	a.registerReceipts(api)
	a.registerLatch(api)
	a.doc = api.OpenAPI()
	describeByHand(a.doc)
	return a.guard(mux)
}

// guard checks a request in the order of ORC-32 before huma reads any of it:
// route and method, who asks, how often. What a principal may is checked by
// each operation, before its look-up.
func (a *API) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.URL.Path == "/openapi.json" {
			mux.ServeHTTP(w, r) // the same for everybody
			return
		}
		events := r.URL.Path == "/v1/events" && r.Method == http.MethodGet
		if h, pattern := mux.Handler(r); pattern == "" && !events {
			noRoute(w, r, h)
			return
		}
		p, err := a.who(r)
		if err != nil {
			status, detail := denial(r, err)
			challenge(w, status)
			problem(w, status, detail)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if ok, retry := a.o.Limiter.Allow(p.Name()); !ok {
				w.Header().Set("Retry-After", retryAfter(retry))
				problem(w, http.StatusTooManyRequests, "too many requests; try again later")
				return
			}
		}
		if events {
			a.openEvents(w, r, p)
			return
		}
		body, err := a.readBody(w, r)
		if err != nil {
			problemBody(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w = bodyRead{w}
		ctx := context.WithValue(r.Context(), guestKey{}, &guest{p, r.RemoteAddr})
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// bodyRead is the writer of a request whose body has been read: the deadline
// that huma sets for reading it, and leaves, would end a cancel's wait.
type bodyRead struct{ http.ResponseWriter }

func (bodyRead) SetReadDeadline(time.Time) error { return nil }

// Unwrap makes the rest of the writer's abilities seen.
func (b bodyRead) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// problemBody answers for a body that could not be read.
func problemBody(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errTooLarge):
		problem(w, http.StatusRequestEntityTooLarge, "the body is larger than 64 KiB")
	case errors.Is(err, errTooSlow):
		w.Header().Set("Connection", "close")
		problem(w, http.StatusRequestTimeout, "the body did not arrive in time")
	default:
		problem(w, http.StatusBadRequest, "the body ended too early")
	}
}

// noRoute answers for a path or a method that is not there, as a problem
// instead of the text that the mux would send.
func noRoute(w http.ResponseWriter, r *http.Request, h http.Handler) {
	if r.URL.Path == "/v1/events" {
		w.Header().Set("Allow", "GET")
		problem(w, http.StatusMethodNotAllowed, r.Method+" is not possible here")
		return
	}
	seen := verdictOnly{header: make(http.Header)}
	h.ServeHTTP(&seen, r)
	if seen.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", seen.header.Get("Allow"))
		problem(w, http.StatusMethodNotAllowed, r.Method+" is not possible here")
		return
	}
	problem(w, http.StatusNotFound, "there is nothing at this path")
}

// verdictOnly is a ResponseWriter that keeps the status and the headers.
type verdictOnly struct {
	header http.Header
	status int
}

func (v *verdictOnly) Header() http.Header         { return v.header }
func (v *verdictOnly) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdictOnly) WriteHeader(status int)      { v.status = status }

// guest is who sent the request that an operation is called for.
type guest struct {
	Principal

	from string
}

type guestKey struct{}

// guestOf returns who asks and how far; an error is a problem already.
func guestOf(ctx context.Context, v verb) (*guest, reach, error) {
	g, ok := ctx.Value(guestKey{}).(*guest)
	if !ok {
		return nil, reach{}, newProblem(http.StatusUnauthorized, "Authorization token required")
	}
	within := reachBy(g, v.all, v.own)
	if within.none() {
		return nil, reach{}, newProblem(http.StatusForbidden, "this needs the permission "+v.own+" or "+v.all)
	}
	return g, within, nil
}

// newProblem is an error in the form of RFC 9457.
func newProblem(status int, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// problemOf is the problem that an error of the domain makes; its type names
// the error's code, which is stable.
func problemOf(err error) error {
	var p *huma.ErrorModel
	if errors.As(err, &p) {
		return p
	}
	p = newProblem(belay.HTTPStatus(err), err.Error())
	if q, ok := errors.AsType[Queued](err); ok && q.Queued() {
		p = newProblem(http.StatusServiceUnavailable, "the run's node cannot be reached; the cancel was written down and is carried out when it is back")
	}
	if p.Status == http.StatusInternalServerError {
		p.Detail = "something went wrong inside; the log says what"
	}
	p.Type = "urn:belay:error:" + string(belay.CodeOf(err))
	return p
}

// problem writes a problem where huma is not involved.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(compact(newProblem(status, detail)))
}

// noEcho takes what was sent out of the answer that says what was wrong with
// it: a problem may end up in somebody else's log.
func noEcho(_ huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*huma.ErrorModel); ok {
		if p.Type == "" {
			p.Type = "about:blank"
		}
		for _, e := range p.Errors {
			e.Value = nil
		}
	}
	return v, nil
}

// openEvents opens GET /v1/events.
func (a *API) openEvents(w http.ResponseWriter, r *http.Request, p Principal) {
	within := reachBy(p, PermRead, PermReadOwn)
	if within.none() {
		problem(w, http.StatusForbidden, "this needs the permission "+PermReadOwn+" or "+PermRead)
		return
	}
	q := r.URL.Query()
	f, err := runFilter{
		Owner: q.Get("owner"), Server: q.Get("server"), Kind: q["kind"], Label: q["label"],
	}.filter()
	if err == nil && q.Get("under") != "" {
		f.Under, err = belay.ParseRunID(q.Get("under"))
	}
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	f.Ended = true
	a.serveEvents(w, r, p, within, f)
}

// describeByHand adds the doors that huma does not serve to the description.
func describeByHand(doc *huma.OpenAPI) {
	text := &huma.Schema{Type: huma.TypeString}
	null := &huma.Schema{Type: huma.TypeString, Nullable: true}
	body := func(required []string, members map[string]*huma.Schema) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {
			Schema: &huma.Schema{Type: huma.TypeObject, Properties: members, Required: required, AdditionalProperties: true},
		}}
	}
	doc.AddOperation(&huma.Operation{
		OperationID: "watch-events", Method: http.MethodGet, Path: "/v1/events", Tags: []string{"events"},
		Summary:     "Stream events of runs and receipts",
		Description: "Server-sent events; Last-Event-ID goes on behind that event. An event lost says that some are missing.",
		Parameters:  []*huma.Param{{Name: "Last-Event-ID", In: "header", Schema: text}},
		Responses: map[string]*huma.Response{"200": {
			Description: "The stream", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: text}},
		}},
	})
	for _, prefix := range []string{seedPrefix, releasedPrefix, newestPrefix} {
		name := strings.ReplaceAll(strings.Trim(prefix, "/"), "/", "-")
		doc.AddOperation(&huma.Operation{
			OperationID: name + "-cancel", Method: http.MethodPost, Path: prefix + "cancel", Tags: []string{"orchestrate"},
			Summary:     "Cancel a run by its id or its protocol's id",
			RequestBody: &huma.RequestBody{Required: true, Content: body([]string{"requestId"}, map[string]*huma.Schema{"requestId": text, "reason": null})},
			Responses: map[string]*huma.Response{"200": {
				Description: "Found and cancelled, or queued",
				Content:     body([]string{"status", "requestId", "reason"}, map[string]*huma.Schema{"status": text, "requestId": text, "reason": null}),
			}},
		})
		doc.AddOperation(&huma.Operation{
			OperationID: name + "-status", Method: http.MethodGet, Path: prefix + "status/{request_id}", Tags: []string{"orchestrate"},
			Summary:    "How a run stands",
			Parameters: []*huma.Param{{Name: "request_id", In: "path", Required: true, Schema: text}},
			Responses: map[string]*huma.Response{
				"200": {Description: "The run", Content: body([]string{"name", "registered_at", "cancelled"}, map[string]*huma.Schema{
					"name": null, "registered_at": {Type: huma.TypeNumber}, "cancelled": {Type: huma.TypeBoolean},
					"cancelled_at": {Type: huma.TypeNumber, Nullable: true}, "cancel_reason": null,
				})},
				"404": {Description: "Run not found", Content: body([]string{"detail"}, map[string]*huma.Schema{"detail": text})},
			},
		})
	}
}
