package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belayhq/belay"
)

// viaDirect is the name of the JSON-RPC doors in cancellations.
const viaDirect = "json-rpc"

// The one method that these doors know.
const methodCancelled = "notifications/cancelled"

// JSON-RPC codes of POST /rpc (ORC-61).
const (
	codeParse     = -32700
	codeRequest   = -32600
	codeMethod    = -32601
	codeParams    = -32602
	codeInternal  = -32603
	codeForbidden = -32003
)

const notAuthorized = "Not authorized to cancel this run"

// serveDirect answers for the doors that take a cancelled notification without
// a session (ORC-60, ORC-61); it returns false for any other path. Whoever is
// known may stop their own runs here, as in a session of theirs; an operator
// any.
func (a *API) serveDirect(w http.ResponseWriter, r *http.Request, path string) bool {
	answer := a.serveNotification
	switch path {
	case "/protocol/notifications", "/notifications":
	case "/rpc":
		answer = a.serveRPC
	default:
		return false
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return true
	}
	p, err := a.who(r)
	if err != nil {
		status, detail := denial(r, err)
		challenge(w, status)
		refuse(w, status, detail)
		return true
	}
	if !a.allow(w, r, a.o.Limiter, p, func(status int) { refuse(w, status, "Too many requests") }) {
		return true
	}
	if !isJSON(r) {
		refuse(w, http.StatusUnsupportedMediaType, "Unsupported Media Type")
		return true
	}
	body, err := a.readBody(w, r)
	if err != nil {
		refuseBody(w, err)
		return true
	}
	by := newAsker(p, reach{owner: p.Name()}, viaDirect, r)
	switch {
	case len(insideOf(p)) > 0:
		by.within = reach{} // its own session is the door for it
	case p.May(PermSystemConfig), p.May(PermCancel):
		by.within = reach{all: true}
	}
	answer(w, r, by, body)
	return true
}

// serveNotification answers POST /protocol/notifications and its alias (ORC-60).
func (a *API) serveNotification(w http.ResponseWriter, r *http.Request, by asker, body []byte) {
	if !jsontext.Value(body).IsValid() {
		refuse(w, http.StatusBadRequest, "Parse error")
		return
	}
	message := members(body)
	method, _ := text(message["method"])
	o, _, ok := readNotified(message["params"])
	if method != methodCancelled || !ok {
		send(w, http.StatusOK, nil) // nothing that is meant for here
		return
	}
	switch e := a.cancelDirect(r, by, &o); {
	case e.word == several:
		send(w, http.StatusConflict, ambiguous(e.many))
	case e.word == notSaved:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "Cancel could not be recorded")
	case e.word == unknown && !by.within.all:
		refuse(w, http.StatusForbidden, notAuthorized)
	default:
		send(w, http.StatusOK, nil)
	}
}

// rpcAnswer is a JSON-RPC answer; exactly one of Result and Error is set.
type rpcAnswer struct {
	JSONRPC string          `json:"jsonrpc"`
	Result  any             `json:"result,omitempty"`
	ID      json.RawMessage `json:"id"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// serveRPC answers POST /rpc (ORC-61).
func (a *API) serveRPC(w http.ResponseWriter, r *http.Request, by asker, body []byte) {
	null := json.RawMessage("null")
	if !jsontext.Value(body).IsValid() {
		send(w, http.StatusOK, rpcAnswer{JSONRPC: "2.0", ID: null, Error: &rpcError{Code: codeParse, Message: "Parse error"}})
		return
	}
	message := members(body)
	id, asked := message["id"]
	method, isText := text(message["method"])
	if !isText || asked && !isRequestID(id) {
		send(w, http.StatusOK, rpcAnswer{JSONRPC: "2.0", ID: null, Error: &rpcError{Code: codeRequest, Message: "Invalid Request"}})
		return
	}
	result, failed := any(struct{}{}), (*rpcError)(nil)
	if method != methodCancelled {
		failed = &rpcError{Code: codeMethod, Message: "Method not found"}
	} else if o, raw, ok := readNotified(message["params"]); ok {
		failed = a.cancelDirect(r, by, &o).rpcError(by, raw)
	}
	if !asked {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if failed != nil {
		result = nil
	}
	send(w, http.StatusOK, rpcAnswer{"2.0", result, id, failed})
}

// rpcError is what an effect is to a JSON-RPC caller; nil: done.
func (e effect) rpcError(by asker, requestID json.RawMessage) *rpcError {
	switch {
	case e.word == several:
		list := ambiguous(e.many)
		return &rpcError{codeParams, list.Detail, map[string]any{"candidates": list.Candidates, "more": list.More}}
	case e.word == notSaved:
		return &rpcError{Code: codeInternal, Message: "Cancel could not be recorded"}
	case e.word == unknown && !by.within.all:
		return &rpcError{codeForbidden, notAuthorized, map[string]json.RawMessage{"requestId": requestID}}
	}
	return nil
}

// cancelDirect carries out a cancel by one of these doors.
func (a *API) cancelDirect(r *http.Request, by asker, o *cancelOrder) effect {
	if utf8.RuneCountInString(o.id) > maxID || strings.ContainsFunc(o.id, unicode.IsControl) {
		return effect{word: unknown} // no run can have such an id
	}
	return a.cancel(r.Context(), by, o)
}

// readNotified reads the params of a cancelled notification, tolerantly: what
// is not as it should be is not there (acceptance 30). ok is false without an id.
func readNotified(params json.RawMessage) (o cancelOrder, id json.RawMessage, ok bool) {
	given := members(params)
	if id = given["requestId"]; !isRequestID(id) {
		return o, nil, false
	}
	o.direct = true
	if o.id, ok = text(id); !ok {
		o.id = string(id)
	}
	if reason, ok := text(given["reason"]); ok {
		reason = belay.CleanReason(reason)
		o.reason = &reason
	}
	return o, id, o.id != ""
}

// isRequestID reports whether the JSON value is a string or a number.
func isRequestID(raw json.RawMessage) bool {
	return len(raw) > 0 && strings.IndexByte(`"-0123456789`, raw[0]) >= 0
}

// members are the members of a JSON object; nil for anything else.
func members(raw []byte) (m map[string]json.RawMessage) {
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}
