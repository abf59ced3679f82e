//go:build unix

package acceptance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// ORC-10, ORC-19, ORC-32 to ORC-34: one exact status for each case, on both verbs
// of all families.
func TestAcceptance17WhoMay(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"call-17"`, "17")
	for _, f := range families {
		for _, verb := range []struct{ method, path, body string }{{"POST", f + "/cancel", `{"requestId":"call-17"}`}, {"GET", f + "/status/call-17", ""}} {
			what := verb.method + " " + verb.path
			for who, detail := range map[string]string{"": "Authorization token required", "wrong": "Invalid authentication credentials", "belay_AAAA": "Invalid authentication credentials", "a.b.c": "Invalid authentication credentials"} {
				a := s.do(t, verb.method, verb.path, who, verb.body)
				want(t, what+" as "+who, a, 401, `{"detail":"`+detail+`"}`)
				if a.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s: WWW-Authenticate %q", what, a.header.Get("WWW-Authenticate"))
				}
			}
			want(t, what, s.do(t, verb.method, verb.path, "", verb.body, "Cookie", "jwt_token="+token("op")), 401,
				`{"detail":"Cookie authentication not allowed for API requests. Use Authorization header."}`)
			for _, who := range []string{"nobody", "ann", "reader", "operator", "caller", "agent"} {
				want(t, what+" as "+who, s.do(t, verb.method, verb.path, who, verb.body), 403, `{"detail":"Access denied"}`)
			}
		}
	}
	s.still(t, "17")
	pending(t, got)
	if a := s.cancel(t, "op", "call-17"); !a.Affected {
		t.Errorf("%+v", a)
	}
}

// ORC-64, ORC-66: switched off by the file or by either variable, the families
// and the doors are not there, for anybody, and Belay acts on no cancel:
// protocol cancels pass with their ids mapped.
func TestAcceptance20SwitchedOff(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*settings){
		"file":     func(c *settings) { c.top["cancellation"] = map[string]any{"enabled": false} },
		"variable": func(c *settings) { c.env = append(c.env, "BELAY_CANCELLATION_ENABLED=false") },
		"drop-in":  func(c *settings) { c.env = append(c.env, "MCPGATEWAY_TOOL_CANCELLATION_ENABLED=false") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, change)
			c := s.begin(t, "ann", "tools")
			hears, deaf := c.tick(t, `"hears-20"`, "20-hears"), c.tick(t, `"deaf-20"`, "20-deaf", `"deaf":true`)
			notice := func(id string) string {
				return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + id + `","reason":"pass it on"}}`
			}
			for _, who := range []string{"op", "ann", "nobody", "wrong", ""} {
				for _, f := range families {
					want(t, f+" as "+who, s.do(t, "POST", f+"/cancel", who, `{"requestId":"deaf-20"}`), 404, `{"detail":"Not Found"}`)
					want(t, f+" as "+who, s.do(t, "GET", f+"/status/deaf-20", who, ""), 404, `{"detail":"Not Found"}`)
				}
				for _, path := range []string{"/protocol/notifications", "/notifications", "/rpc"} {
					want(t, path+" as "+who, s.do(t, "POST", path, who, notice("deaf-20")), 404, `{"detail":"Not Found"}`)
				}
			}
			for _, id := range []string{"hears-20", "deaf-20"} {
				if a := c.post(t, notice(id)); a.status != 202 {
					t.Errorf("notification: %d %s", a.status, a.body)
				}
			}
			if e := s.saw(t, "20-hears", "signal"); e.detail != "pass it on" {
				t.Errorf("the tool was told %q", e.detail)
			}
			s.saw(t, "20-deaf", "signal")
			s.saw(t, "20-hears", "stopped")
			s.still(t, "20-deaf") // beyond the grace period
			select {
			case r := <-hears:
				if r.code() == -32800 {
					t.Errorf("made by Belay: %s", r.raw)
				}
			default: // the tool obeys and says nothing, as MCP wants it
			}
			pending(t, deaf)
		})
	}
}

// ORC-65: without the families everything else goes on. Also acceptance 20: on
// by default.
func TestAcceptance20FamiliesOff(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *settings) { c.orch["enabled"] = false })
	got := s.begin(t, "ann", "tools").tick(t, `"call-20"`, "20")
	for _, f := range families {
		for _, who := range []string{"op", ""} {
			want(t, f+" as "+who, s.do(t, "POST", f+"/cancel", who, `{"requestId":"call-20"}`), 404, `{"detail":"Not Found"}`)
			want(t, f+" as "+who, s.do(t, "GET", f+"/status/call-20", who, ""), 404, `{"detail":"Not Found"}`)
		}
	}
	s.still(t, "20")
	want(t, "door", s.do(t, "POST", "/notifications", "ann", `{"method":"notifications/cancelled","params":{"requestId":"call-20"}}`), 200, `null`)
	if r := wait(t, got); r.code() != -32800 && r.raw != "" && r.Error != nil {
		t.Errorf("the caller got %s", r.raw)
	}
	s.quiet(t, "20")
	if list := s.runs(t, "op", "?state=all&owner=ann"); len(list) == 0 {
		t.Error("/v1 lists nothing")
	}
}

// notified is what the doors without a session take; id is raw JSON.
func notified(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"by a door"}}`
}

// ORC-60, acceptance 21 and 24: the owner stops their run without a session, with
// the default permissions, whatever the id's type. Both names of the door.
func TestAcceptance21OwnerByNotification(t *testing.T) { // not parallel, nor the next: both stop ann's call 0 at the same server
	ownerByDoor(t, "21", "/protocol/notifications")
}

// The alias, same rules.
func TestAcceptance24Alias(t *testing.T) {
	ownerByDoor(t, "24", "/notifications")
	strangerByDoor(t, "24s", "/notifications")
	unknownByDoor(t, "24u", "/notifications")
}

func ownerByDoor(t *testing.T, n, door string) {
	s := plain(t)
	c := s.begin(t, "ann", "tools")
	for sub, id := range map[string]string{"text": `"door-` + n + `"`, "number": n[:2] + "001", "zero": "0"} {
		key := n + "-" + sub
		c.tick(t, id, key)
		want(t, door+" "+id, s.do(t, "POST", door, "ann", notified(id)), 200, `null`)
		s.quiet(t, key)
		want(t, door+" again", s.do(t, "POST", door, "ann", notified(id)), 200, `null`) // it has ended
	}
	want(t, "another method", s.do(t, "POST", door, "ann", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"requestId":1}}`), 200, `null`)
	want(t, "no credentials", s.do(t, "POST", door, "", notified(`1`)), 401, `{"detail":"Authorization token required"}`)
	want(t, "no JSON", s.do(t, "POST", door, "ann", `{"jsonrpc":`), 400, `{"detail":"Parse error"}`)
	if a := s.do(t, "GET", door, "ann", ""); a.status != 405 || a.header.Get("Allow") == "" {
		t.Errorf("GET: %d %v", a.status, a.header)
	}
}

// ORC-60, acceptance 22: a stranger gets 403, the run goes on, and nothing says
// that it was cancelled.
func TestAcceptance22Stranger(t *testing.T) {
	t.Parallel()
	strangerByDoor(t, "22", "/protocol/notifications")
}

func strangerByDoor(t *testing.T, n, door string) {
	s := plain(t)
	id := "stranger-" + n
	got := s.begin(t, "ann", "tools").tick(t, `"`+id+`"`, n)
	run := s.status(t, "op", id).Run
	for _, name := range []string{id, run.String()} {
		want(t, "stranger", s.do(t, "POST", door, "bob", notified(`"`+name+`"`)), 403, `{"detail":"Not authorized to cancel this run"}`)
	}
	s.still(t, n)
	pending(t, got)
	for _, line := range s.audit(id) {
		if strings.Contains(line, "principal=bob") && !strings.Contains(line, "affected=false") {
			t.Errorf("logged as a cancel: %s", line)
		}
	}
	if st := s.status(t, "op", id); st.Cancelled {
		t.Errorf("%+v", st)
	}
	want(t, "operator", s.do(t, "POST", door, "op", notified(`"`+id+`"`)), 200, `null`)
	if r := wait(t, got); r.code() != -32800 {
		t.Errorf("the caller got %s", r.raw)
	}
}

// ORC-60, ORC-62, acceptance 23: an unknown id is 403 as a foreign one is, a
// no-op for an operator; nothing is published and nothing remembered.
func TestAcceptance23UnknownByNotification(t *testing.T) {
	t.Parallel()
	unknownByDoor(t, "23", "/protocol/notifications")
}

func unknownByDoor(t *testing.T, n, door string) {
	s := plain(t)
	id := "unknown-" + n
	ears := []*stream{s.begin(t, "op", "tools").hear(t), s.begin(t, "bob", "tools").hear(t)}
	want(t, "unknown", s.do(t, "POST", door, "bob", notified(`"`+id+`"`)), 403, `{"detail":"Not authorized to cancel this run"}`)
	want(t, "unknown run", s.do(t, "POST", door, "bob", notified(`"`+belay.NewRunID().String()+`"`)), 403, `{"detail":"Not authorized to cancel this run"}`)
	want(t, "unknown", s.do(t, "POST", door, "op", notified(`"`+id+`"`)), 200, `null`)
	for _, who := range []string{"op", "bob"} {
		if r := wait(t, s.begin(t, who, "tools").call(t, `"`+id+`"`, "echo", `{}`)); r.Result == nil {
			t.Errorf("the next call of %s with that id: %s", who, r.raw)
		}
	}
	for _, e := range ears {
		if heard := e.with(id); len(heard) > 0 {
			t.Errorf("published: %v", heard)
		}
	}
}

// ORC-61, ORC-62, acceptance 25.
func TestAcceptance25RPC(t *testing.T) {
	t.Parallel()
	s := plain(t)
	rpc := func(id, requestID string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"notifications/cancelled","params":{"requestId":%s}}`, id, requestID)
	}
	refused := func(id, requestID string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32003,"message":"Not authorized to cancel this run","data":{"requestId":` + requestID + `}}}`
	}
	c := s.begin(t, "ann", "tools")
	got := c.tick(t, `"rpc-25"`, "25")
	want(t, "stranger", s.do(t, "POST", "/rpc", "bob", rpc(`3`, `"rpc-25"`)), 200, refused(`3`, `"rpc-25"`))
	want(t, "unknown", s.do(t, "POST", "/rpc", "bob", rpc(`"x"`, `25025`)), 200, refused(`"x"`, `25025`))
	want(t, "unknown, operator", s.do(t, "POST", "/rpc", "op", rpc(`1.5`, `"none-25"`)), 200, `{"jsonrpc":"2.0","result":{},"id":1.5}`)
	s.still(t, "25")
	want(t, "without id", s.do(t, "POST", "/rpc", "bob", notified(`"rpc-25"`)), 202, ``)
	s.still(t, "25")
	want(t, "owner", s.do(t, "POST", "/rpc", "ann", rpc(`4`, `"rpc-25"`)), 200, `{"jsonrpc":"2.0","result":{},"id":4}`)
	s.quiet(t, "25")
	wait(t, got)
	for body, code := range map[string]string{
		`{"jsonrpc":`: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`,
		`[1]`:         `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`,
		`7`:           `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`,
		`{"id":1,"jsonrpc":"2.0","method":"tools/call","params":{}}`: `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,`,
	} {
		if a := s.do(t, "POST", "/rpc", "ann", body); a.status != 200 || !strings.HasPrefix(a.body, code) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	want(t, "no credentials", s.do(t, "POST", "/rpc", "", rpc(`1`, `1`)), 401, `{"detail":"Authorization token required"}`)
}

// ORC-35, ORC-72: with owner access on, the owner's "36" is the owner's, however
// many others have one.
func TestAcceptance36OwnersSeeTheirOwn(t *testing.T) {
	t.Parallel()
	s := open(t)
	got := map[string]<-chan reply{}
	for _, who := range []string{"ann", "bob", "cat", "dan"} {
		got[who] = s.begin(t, who, "tools").tick(t, `36`, "36-"+who)
	}
	mine := s.status(t, "ann", "36")
	a := s.cancel(t, "ann", "36", `"wait":10`)
	if a.Status != "cancelled" || !a.Affected || *a.Run != mine.Run {
		t.Errorf("%+v; the status had said %+v", a, mine)
	}
	if r := wait(t, got["ann"]); r.code() != -32800 && r.raw != "" {
		t.Errorf("the caller got %s", r.raw)
	}
	s.quiet(t, "36-ann")
	if st := s.status(t, "ann", mine.Run.String()); st.Cause != belay.CauseUser {
		t.Errorf("%+v", st)
	}
	for _, who := range []string{"bob", "cat", "dan"} {
		s.still(t, "36-"+who)
	}
	if a := into[several](t, s.tryStatus(t, "op", "36"), 409); len(a.Candidates) != 3 || a.More != 0 { // the operator sees the others'
		t.Errorf("%+v", a)
	}
	for _, who := range []string{"bob", "cat", "dan"} {
		s.cancel(t, who, "36")
		wait(t, got[who])
	}
}

// A user stops their own run and can neither see nor stop another's, with equal
// JSON-RPC ids on both sides (ORC-35, ORC-54, ORC-71, ORC-72; DESIGN 8): what
// exists but is not theirs has the same bytes as what does not.
func TestUsersAreApart(t *testing.T) {
	t.Parallel()
	s := open(t)
	annGot, bobGot := s.begin(t, "ann", "tools").tick(t, `"apart"`, "apart-ann"), s.begin(t, "bob", "tools").tick(t, `"apart"`, "apart-bob")
	annRun, bobRun := s.status(t, "ann", "apart").Run.String(), s.status(t, "bob", "apart").Run.String()
	none := belay.NewRunID().String()
	mask := func(a answer) string {
		return fmt.Sprint(a.status, " ", strings.NewReplacer(bobRun, "RUN", none, "RUN").Replace(a.body))
	}
	for _, ask := range []func(id string) answer{
		func(id string) answer { return s.tryStatus(t, "ann", id) },
		func(id string) answer { return s.tryCancel(t, "ann", id) },
		func(id string) answer { return s.do(t, "GET", "/v1/runs/"+id, "ann", "") },
		func(id string) answer { return s.do(t, "GET", "/v1/receipts/"+id, "ann", "") },
		func(id string) answer { return s.do(t, "POST", "/v1/runs/"+id+"/cancel", "ann", `{}`) },
		func(id string) answer { return s.do(t, "POST", "/v1/cancel", "ann", `{"ids":["`+id+`"]}`) },
		func(id string) answer { return s.do(t, "POST", "/v1/cancel", "ann", `{"under":"`+id+`"}`) },
		func(id string) answer { return s.do(t, "POST", "/notifications", "ann", notified(`"`+id+`"`)) },
		func(id string) answer {
			return s.do(t, "POST", "/rpc", "ann", `{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":"`+id+`"}}`)
		},
	} {
		theirs, nobodys := mask(ask(bobRun)), mask(ask(none))
		if stops := regexpStop.ReplaceAllString(theirs, "STOP"); stops != regexpStop.ReplaceAllString(nobodys, "STOP") {
			t.Errorf("a run of somebody else: %s\na run of nobody:        %s", theirs, nobodys)
		}
	}
	for _, i := range s.runs(t, "ann", "?state=all&limit=1000") {
		if i.Owner != "ann" {
			t.Errorf("ann sees %+v", i)
		}
	}
	if list := s.runs(t, "ann", "?owner=bob"); len(list) != 0 {
		t.Errorf("ann sees %+v", list)
	}
	s.still(t, "apart-bob")
	if a := s.cancel(t, "ann", "apart", `"wait":10`); !a.Affected || a.Run.String() != annRun {
		t.Errorf("%+v", a)
	}
	wait(t, annGot)
	s.quiet(t, "apart-ann")
	s.still(t, "apart-bob")
	pending(t, bobGot)
	s.cancel(t, "bob", "apart")
	wait(t, bobGot)
}
