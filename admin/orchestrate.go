package admin

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belayhq/belay"
)

// viaOrchestrate is the door's name in cancellations.
const viaOrchestrate = "orchestrate"

// The names of the family (ORC-1, ORC-11, ORC-25). One behaviour.
const (
	seedPrefix     = "/orchestrate/"
	releasedPrefix = "/cancellation/"
	newestPrefix   = "/v1/cancellation/"
)

// serveFamily answers a request for the Orchestrate family; it returns false
// for any other path. The order of the checks is ORC-32's.
func (a *API) serveFamily(w http.ResponseWriter, r *http.Request, path string) bool {
	var rest, prefix string
	for _, prefix = range []string{seedPrefix, releasedPrefix, newestPrefix} {
		var ok bool
		if rest, ok = strings.CutPrefix(path, prefix); ok {
			break
		}
		prefix = ""
	}
	if prefix == "" {
		return false
	}
	id, isStatus := strings.CutPrefix(rest, "status/")
	if a.o.NoOrchestrate || !isStatus && rest != "cancel" || isStatus && (id == "" || strings.Contains(id, "/")) {
		refuse(w, http.StatusNotFound, "Not Found")
		return true
	}
	if prefix == releasedPrefix {
		w.Header().Set("Link", "<"+newestPrefix+rest+`>; rel="successor-version"`) // ORC-31
	}
	method, does := http.MethodPost, toCancel
	if isStatus {
		method, does = http.MethodGet, toRead
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		refuse(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return true
	}
	by, ok := a.admit(w, r, does)
	switch {
	case !ok:
	case isStatus:
		a.serveStatus(w, r, by, id)
	default:
		a.serveCancel(w, r, by)
	}
	return true
}

// admit checks who asks, whether they may, and how often they did.
func (a *API) admit(w http.ResponseWriter, r *http.Request, does verb) (asker, bool) {
	p, err := a.who(r)
	if err != nil {
		status, detail := denial(r, err)
		challenge(w, status)
		refuse(w, status, detail)
		return asker{}, false
	}
	within := orchestrateReach(p, a.o.Permissions, does)
	if within.none() {
		refuse(w, http.StatusForbidden, "Access denied")
		return asker{}, false
	}
	if !a.allow(w, r, a.o.Limiter, p, func(status int) { refuse(w, status, "Too many requests") }) {
		return asker{}, false
	}
	return newAsker(p, within, viaOrchestrate, r), true
}

func (a *API) serveCancel(w http.ResponseWriter, r *http.Request, by asker) {
	if !isJSON(r) {
		refuse(w, http.StatusUnsupportedMediaType, "Unsupported Media Type")
		return
	}
	body, err := a.readBody(w, r)
	if err != nil {
		refuseBody(w, err)
		return
	}
	o, wrong := readCancel(body, r.Header)
	if len(wrong) > 0 {
		refuse(w, http.StatusUnprocessableEntity, wrong)
		return
	}
	e := a.cancel(r.Context(), by, &o)
	e.stored = a.store(r.Context(), belay.Detail{Info: e.run, Receipt: e.receipt})
	switch e.word {
	case several:
		send(w, http.StatusConflict, ambiguous(e.many))
	case notSaved:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "Cancel could not be recorded")
	case otherName:
		refuse(w, http.StatusUnprocessableEntity, []finding{
			found("value_error", "Value error, this Idempotency-Key was used with another requestId", "header", "Idempotency-Key"),
		})
	default:
		send(w, http.StatusOK, e.answer(&o))
	}
}

// answer is the seed's form of an effect that is one of its two words.
func (e *effect) answer(o *cancelOrder) any {
	switch e.word {
	case stopped:
		work := e.run.Work
		c := cancelAnswer{
			Status: statusCancelled, RequestID: o.id, Reason: o.reason, Run: &e.run.ID,
			Affected: e.affected, Work: &work, Verdict: finalVerdict(e.receipt),
		}
		if e.stored != nil && !*e.stored {
			c.Stored = e.stored
		}
		return c
	case over:
		return endedAnswer{Status: statusQueued, RequestID: o.id, Reason: o.reason, Run: e.run.ID, Outcome: e.run.Outcome}
	case stored:
		return cancelAnswer{Status: statusQueued, RequestID: o.id, Reason: o.reason, Run: &e.run.ID, Pending: true}
	}
	return cancelAnswer{Status: statusQueued, RequestID: o.id, Reason: o.reason, Pending: e.waits}
}

func (a *API) serveStatus(w http.ResponseWriter, r *http.Request, by asker, escaped string) {
	id, err := url.PathUnescape(escaped) // once (ORC-30)
	if err != nil || !utf8.ValidString(id) || utf8.RuneCountInString(id) > maxID || strings.ContainsFunc(id, unicode.IsControl) {
		refuse(w, http.StatusNotFound, "Run not found") // no run can have such an id
		return
	}
	m, err := a.resolve(r.Context(), id, by.within, false)
	switch {
	case m.many != nil:
		send(w, http.StatusConflict, ambiguous(m.many))
	case m.one != nil:
		send(w, http.StatusOK, a.statusOf(m.one))
	case err != nil && belay.CodeOf(err) != "not_found":
		a.o.Logger.WarnContext(r.Context(), "a run could not be looked up everywhere", "error", err)
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "Runs could not be looked up")
	default:
		refuse(w, http.StatusNotFound, "Run not found")
	}
}
