package main

import (
	"errors"
	"time"

	"github.com/belayhq/belay/auth"
)

// admin measures belay serve as a house for several people: what the ledger,
// the metrics and authentication cost a call, and how fast it stops and lists
// runs over REST.
func (b *bench) admin() error {
	if b.belay == "" {
		return errors.New("needs the belay binary")
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"admin: a call with everything on", b.callCosts},
		{"admin: cancels over REST", b.restCancels},
		{"admin: listing 100,000 runs", b.listing},
		{"admin: cancels beside a flood", b.floods},
	} {
		if err := part.run(); err != nil {
			b.report.failed(part.name, err)
		}
	}
	return nil
}

// household are the people of a measured belay serve, by their tokens.
type household struct {
	user  string // calls tools
	boss  string // may do everything
	crank string // may stop everything, and asks for nonsense
}

// newHousehold returns people and the settings that know them.
func newHousehold() (household, map[string]any) {
	var h household
	var tokens []map[string]any
	for _, one := range []struct {
		text       *string
		name, role string
	}{{&h.user, "user", "user"}, {&h.boss, "boss", "admin"}, {&h.crank, "crank", "admin"}} {
		var hash string
		*one.text, hash = auth.NewToken()
		tokens = append(tokens, map[string]any{"name": one.name, "hash": hash, "roles": []string{one.role}})
	}
	return h, map[string]any{"auth": map[string]any{"tokens": tokens}}
}

// unlimited is more than any client here can send; the rate is that of /v1, too.
func unlimited() map[string]any {
	return map[string]any{"rate": 1_000_000, "burst": 1_000_000}
}

// held is what a call's tool is told so that it lasts until it is cancelled: the
// first tick is later than anything measured here.
const held = `{"n":1000,"ms":100000}`

// inHouse starts belay serve with people before a tool that answers its cancels,
// and has the user make so many calls, each on its own connection, that last
// until they are cancelled. It returns their runs.
func (b *bench) inHouse(calls int, orchestrate map[string]any) (*house, error) {
	people, settings := newHousehold()
	if orchestrate != nil {
		settings["orchestrate"] = orchestrate
	}
	mid, err := b.belayServe(b.server("", "-reply=iserror"), "", settings)
	if err != nil {
		return nil, err
	}
	h := &house{household: people, service: mid}
	if h.caller, err = openWeb("user", mid.url, eraLegacy, people.user, mid); err == nil {
		h.admin, err = openREST(mid.url, people.boss)
	}
	if err == nil {
		err = h.fill(calls)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// house is a belay serve with calls in flight.
type house struct {
	household

	service *service
	caller  *web
	admin   *rest
	runs    []string // in flight
}

// fill makes calls and waits until all of them are at the tool.
func (h *house) fill(calls int) error {
	for n := range calls {
		if _, err := h.caller.begin(n, "tick", held); err != nil {
			return err
		}
	}
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if h.runs, err = h.admin.inFlight(); err != nil {
			return err
		}
		if len(h.runs) >= calls {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("not all calls are in flight")
		}
	}
}

func (h *house) close() {
	if h.caller != nil {
		_ = h.caller.close()
	}
	if h.admin != nil {
		h.admin.close()
	}
	h.service.stop()
}
