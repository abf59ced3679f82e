package httpserver

import (
	"errors"
	"net/http"
	"time"

	"github.com/belayhq/belay"
)

// Identity is who sent a request, as [Config.Identify] found out.
type Identity struct {
	Principal string    // the owner of what the request starts
	Expires   time.Time // streams end then; zero: never

	// Unproven says that the principal stands for whoever gets here, and nobody
	// was asked to show anything: then one client's word about another's call does
	// not count (MCP-G13).
	Unproven bool
}

// Refuser is an error of [Config.Identify] that knows its own answer. Statuses
// other than 401, 403, 429 and 503 become 401. The headers are added to the
// response; text is what the caller reads, and must not hold a part of the
// credentials.
type Refuser interface {
	error
	Refusal() (status int, header http.Header, text string)
}

var errNobody = errors.New("the principal has no name")

// identify fills in who sent the request.
func (h *Handler) identify(w http.ResponseWriter, r *http.Request, who *Caller) *failure {
	if h.cfg.Identify == nil {
		who.Principal, who.unproven = local, true
		return nil
	}
	id, err := h.cfg.Identify(r)
	if err == nil && id.Principal == "" {
		err = errNobody
	}
	if err != nil {
		h.cfg.Log.Debug("a request was refused: it is not known whose it is", "error", err, "remote", r.RemoteAddr)
		return refusal(w.Header(), err)
	}
	who.Principal, who.expires, who.unproven = id.Principal, id.Expires, id.Unproven
	return nil
}

// refusal turns an error of Identify into an answer. An error that says nothing
// about its answer is a 401 without details: it may hold what the caller must
// not read.
func refusal(header http.Header, err error) *failure {
	f := &failure{status: http.StatusUnauthorized, code: codeInvalidRequest, text: "not authenticated"}
	if known, ok := errors.AsType[Refuser](err); ok {
		status, more, text := known.Refusal()
		switch status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
			f.status = status
		}
		for name, values := range more {
			header[http.CanonicalHeaderKey(name)] = values
		}
		f.text = belay.CleanReason(text)
	}
	if f.status == http.StatusUnauthorized && header.Get("WWW-Authenticate") == "" {
		header.Set("WWW-Authenticate", `Bearer realm="belay"`)
	}
	return f
}
