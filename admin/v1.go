package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json/jsontext"

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
	a.registerLeases(api)
	a.registerApprovals(api)
	a.registerPreview(api)
	a.registerPrincipals(api)
	a.doc = api.OpenAPI()
	describeByHand(a.doc, !a.o.NoOrchestrate)
	complete(a.doc)
	a.queries = queriesOf(a.doc)
	return a.guard(mux)
}

// queriesOf are the names that may stand in the query of each operation, by its
// pattern.
func queriesOf(doc *huma.OpenAPI) map[string][]string {
	all := make(map[string][]string)
	for at, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodDelete: item.Delete,
		} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					all[method+" "+at] = append(all[method+" "+at], p.Name)
				}
			}
		}
	}
	return all
}

// stranger is a name in a query that an operation does not know; empty: there is
// none. A filter that nobody heeds would show, or export, what was not asked for.
func (a *API) stranger(pattern string, r *http.Request) string {
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if !slices.Contains(a.queries[pattern], name) {
			return name
		}
	}
	return ""
}

// guard checks a request in the order of ORC-32 before huma reads any of it:
// route and method, who asks, may they, how often, media type, size. How far a
// principal's permissions reach is checked by each operation, before its look-up.
func (a *API) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.URL.Path == "/openapi.json" {
			mux.ServeHTTP(w, r) // the same for everybody
			return
		}
		events := r.URL.Path == "/v1/events" && r.Method == http.MethodGet
		if at := r.URL.EscapedPath(); path.Clean(at) != at { // the mux would redirect, and nobody is redirected here
			problem(w, http.StatusNotFound, "there is nothing at this path")
			return
		}
		h, pattern := mux.Handler(r)
		if pattern == "" && !events {
			noRoute(w, r, h)
			return
		}
		var era <-chan struct{}
		if events {
			era = a.streams.now() // before it is asked who that is
		}
		p, err := a.who(r)
		if err != nil {
			status, detail := denial(r, err)
			challenge(w, status)
			problem(w, status, detail)
			return
		}
		if needed := a.opens[pattern]; !opened(p, needed) {
			problem(w, http.StatusForbidden, "this needs the permission "+strings.Join(needed, " or "))
			return
		}
		limiter := a.limiterFor(r)
		if limiter != nil && !a.allow(w, r, limiter, p, func(status int) { problem(w, status, "too many requests; try again later") }) {
			return
		}
		if events {
			pattern = "GET /v1/events"
		}
		if name := a.stranger(pattern, r); name != "" {
			problem(w, http.StatusUnprocessableEntity, fmt.Sprintf("the query has %.64q, which means nothing here", name))
			return
		}
		format, export := exportOf(r)
		switch {
		case events:
			a.openEvents(w, r, p, era)
			return
		case export:
			a.export(w, r, p, format)
			return
		}
		body, ok := a.admitBody(w, r)
		if !ok {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w = bodyRead{w}
		ctx := context.WithValue(r.Context(), guestKey{}, &guest{p, r.RemoteAddr})
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// opened reports whether p may come in by a door that these permissions open.
// Whoever speaks from inside a run comes in to where runs are stopped, and is
// told there which.
func opened(p Principal, permissions []string) bool {
	return len(permissions) == 0 || slices.ContainsFunc(permissions, p.May) ||
		slices.Equal(permissions, cancelling) && len(insideOf(p)) > 0
}

// limiterFor is what bounds a request of /v1; nil: nothing does. Reading is
// bounded by the sizes of pages, and streams by their number.
func (a *API) limiterFor(r *http.Request) Limiter {
	switch {
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return nil
	case r.URL.Path == "/v1/runs", strings.HasSuffix(r.URL.Path, "/heartbeat"), strings.HasSuffix(r.URL.Path, "/report"):
		return a.o.LeaseLimiter
	}
	return a.o.Limiter
}

// admitBody reads a body and checks its form; ok is false when it was refused.
func (a *API) admitBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if r.ContentLength != 0 && !isJSON(r) {
		problem(w, http.StatusUnsupportedMediaType, "the body's type is not application/json")
		return nil, false
	}
	body, err := a.readBody(w, r)
	switch {
	case err != nil:
		problemBody(w, err)
		return nil, false
	case len(body) > 0 && !jsontext.Value(body).IsValid():
		// Strict: no second member of a name, of which two readers would take
		// different ones.
		problem(w, http.StatusBadRequest, "the body is no JSON, or a name in it stands twice")
		return nil, false
	}
	return body, true
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
func (a *API) guestOf(ctx context.Context, v verb) (*guest, reach, error) {
	g, err := guestIn(ctx)
	if err != nil {
		return nil, reach{}, err
	}
	within := a.reachOf(ctx, g, v)
	if within.none() {
		return nil, reach{}, newProblem(http.StatusForbidden, "this needs the permission "+v.own+" or "+v.all)
	}
	return g, within, nil
}

// guestIn is who asks.
func guestIn(ctx context.Context) (*guest, error) {
	if g, ok := ctx.Value(guestKey{}).(*guest); ok {
		return g, nil
	}
	return nil, newProblem(http.StatusUnauthorized, "Authorization token required")
}

// outsider is who asks, if they hold one of the permissions and speak from outside
// of the runs.
func outsider(ctx context.Context, permissions ...string) (*guest, error) {
	g, err := guestIn(ctx)
	switch {
	case err != nil:
		return nil, err
	case !slices.ContainsFunc(permissions, g.May):
		return nil, newProblem(http.StatusForbidden, "this needs the permission "+strings.Join(permissions, " or "))
	case len(insideOf(g)) > 0:
		return nil, newProblem(http.StatusForbidden, "this is not done from inside a run")
	}
	return g, nil
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
	if p.Status == http.StatusServiceUnavailable {
		return retryLater(p)
	}
	return p
}

// retryLater says with a problem that it may be over soon.
func retryLater(p *huma.ErrorModel) error {
	return huma.ErrorWithHeaders(p, http.Header{"Retry-After": {"1"}})
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
func (a *API) openEvents(w http.ResponseWriter, r *http.Request, p Principal, era <-chan struct{}) {
	within, f, ok := a.readable(w, r, p)
	if !ok {
		return
	}
	a.serveEvents(w, r, p, within, f, era)
}

// readable is the reach and the filter of a stream that is written by hand.
func (a *API) readable(w http.ResponseWriter, r *http.Request, p Principal) (reach, belay.Filter, bool) {
	within := reachBy(p, PermRead, PermReadOwn)
	if within.none() {
		problem(w, http.StatusForbidden, "this needs the permission "+PermReadOwn+" or "+PermRead)
		return within, belay.Filter{}, false
	}
	q := r.URL.Query()
	f, err := runFilter{
		Owner: q.Get("owner"), Server: q.Get("server"), Kind: q["kind"], Label: q["label"], Under: q.Get("under"),
	}.filter()
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return within, f, false
	}
	f.Ended = true
	return within, f, true
}
