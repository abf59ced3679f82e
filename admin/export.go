package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// exportOf is the format of a request for all receipts as a stream; ok is false
// for any other request.
func exportOf(r *http.Request) (f Format, ok bool) {
	if r.Method != http.MethodGet || r.URL.Path != "/v1/receipts" {
		return "", false
	}
	if q := r.URL.Query(); q.Has("format") {
		f = Format(q.Get("format"))
		return f, f == CSV || f == NDJSON // json is a page; another word is refused there
	}
	for _, accept := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(accept, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json":
				return "", false
			case "text/csv":
				return CSV, true
			case "application/x-ndjson":
				return NDJSON, true
			}
		}
	}
	return "", false
}

// export streams all receipts within the reach. It counts as one of the
// principal's streams. What fails before the first byte is a problem; after it
// the connection is broken, so that half an export never looks like a whole one.
func (a *API) export(w http.ResponseWriter, r *http.Request, p Principal, format Format) {
	within, f, ok := a.readable(w, r, p)
	if !ok {
		return
	}
	query := r.URL.Query()
	var stop belay.StopID
	err := stop.UnmarshalText([]byte(query.Get("stop")))
	switch {
	case err != nil:
		problem(w, http.StatusBadRequest, "stop is not the id of a Stop")
		return
	case query.Has("cursor"), query.Has("limit"):
		problem(w, http.StatusBadRequest, "an export is whole: it has neither cursor nor limit")
		return
	case a.o.Export == nil:
		problem(w, http.StatusNotImplemented, "this server keeps no receipts that could be exported")
		return
	case !a.streams.open(accountOf(p)):
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusTooManyRequests, "too many streams are open")
		return
	}
	defer a.streams.closed(accountOf(p))
	out := &exportWriter{w: w, control: http.NewResponseController(w), format: format}
	if f, ok = within.narrow(f); ok {
		err = a.o.Export(r.Context(), out, format, HistoryQuery{Filter: f, Stop: stop, Stopped: true})
	}
	a.o.Logger.InfoContext(r.Context(), "receipts exported", "principal", nameOf(p), "address", r.RemoteAddr, "format", format, "error", err)
	switch {
	case err == nil:
		out.begin() // an empty one has its headers, too
	case !out.begun:
		problem(w, belay.HTTPStatus(err), "the receipts could not be read; the log says why")
	default:
		panic(http.ErrAbortHandler)
	}
}

// exportWriter sends the headers with the first byte, and gives each write its
// own time.
type exportWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	format  Format
	begun   bool
}

func (e *exportWriter) begin() {
	if e.begun {
		return
	}
	e.begun = true
	kind := "text/csv; charset=utf-8; header=present"
	if e.format == NDJSON {
		kind = "application/x-ndjson"
	}
	e.w.Header().Set("Content-Type", kind)
	e.w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="receipts.%s"`, e.format))
	e.w.WriteHeader(http.StatusOK)
}

// Write implements [io.Writer].
func (e *exportWriter) Write(b []byte) (int, error) {
	e.begin()
	_ = e.control.SetWriteDeadline(time.Now().Add(streamPatient)) // as for event streams
	return e.w.Write(b)
}
