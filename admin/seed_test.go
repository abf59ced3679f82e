package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/belayhq/belay"
)

// seedClient was written from the page that first described the two routes, and
// knows nothing else of Belay.
type seedClient struct {
	base, token string
}

type seedCancelled struct {
	Status    string  `json:"status"`
	RequestID string  `json:"requestId"`
	Reason    *string `json:"reason"`
}

type seedRun struct {
	Name         *string  `json:"name"`
	RegisteredAt float64  `json:"registered_at"`
	Cancelled    bool     `json:"cancelled"`
	CancelledAt  *float64 `json:"cancelled_at"`
	CancelReason *string  `json:"cancel_reason"`
}

func (c seedClient) cancel(id string, reason *string) (out seedCancelled, err error) {
	body, _ := json.Marshal(map[string]any{"requestId": id, "reason": reason})
	req, _ := http.NewRequest(http.MethodPost, c.base+"/orchestrate/cancel", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	return out, c.send(req, &out)
}

func (c seedClient) status(id string) (out seedRun, err error) {
	req, _ := http.NewRequest(http.MethodGet, c.base+"/orchestrate/status/"+id, nil)
	return out, c.send(req, &out)
}

func (c seedClient) send(req *http.Request, out any) error {
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Detail string `json:"detail"`
		}
		_ = json.NewDecoder(resp.Body).Decode(&e)
		return fmt.Errorf("%d %s", resp.StatusCode, e.Detail)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// The seed, by a client that knows nothing else (acceptance 1, 4, 6, 7, 15, 18,
// 34): ORC-1, ORC-2, ORC-3, ORC-4, ORC-5, ORC-6, ORC-8, ORC-9, ORC-11, ORC-12,
// ORC-13, ORC-14, ORC-15, ORC-16, ORC-17, ORC-18.
func TestSeedClient(t *testing.T) {
	r := newRig(t, Options{})
	c := seedClient{r.url, "op"}
	if _, err := c.status("call-7"); err == nil || err.Error() != "404 Run not found" {
		t.Errorf("status of an unknown run: %v", err)
	}
	s := &stopper{}
	run := r.call("ann", `"call-7"`, with(s))
	before, err := c.status("call-7")
	if err != nil || before.Name == nil || *before.Name != "tool:slow" || before.Cancelled || before.CancelledAt != nil || before.CancelReason != nil {
		t.Errorf("before the cancel: %+v, %v", before, err)
	}
	if sec := float64(run.Started().UnixMicro()) / 1e6; before.RegisteredAt != sec {
		t.Errorf("registered_at %f, want %f", before.RegisteredAt, sec)
	}
	why := "user pressed Stop"
	got, err := c.cancel("call-7", &why)
	if err != nil || got.Status != "cancelled" || got.RequestID != "call-7" || got.Reason == nil || *got.Reason != why {
		t.Errorf("cancel: %+v, %v", got, err)
	}
	if receipt := r.wait(run); receipt.Verdict != belay.Confirmed {
		t.Errorf("receipt %+v", receipt)
	}
	again, err := c.cancel("call-7", nil)
	if err != nil || again.Status != "cancelled" || again.Reason != nil {
		t.Errorf("second cancel: %+v, %v", again, err)
	}
	after, err := c.status("call-7")
	if err != nil || !after.Cancelled || after.CancelledAt == nil || *after.CancelledAt < after.RegisteredAt ||
		after.CancelReason == nil || *after.CancelReason != why {
		t.Errorf("after it: %+v, %v", after, err)
	}
	if told := s.times(); len(told) != 1 || told[0].Reason != why {
		t.Errorf("the stopper was told %v", told)
	}
	if got, err := c.cancel("nobody-knows", nil); err != nil || got.Status != "queued" || got.Reason != nil {
		t.Errorf("unknown id: %+v, %v", got, err)
	}
}

// The exact bytes, in the seed's order, additions behind (ORC-29, ORC-38,
// ORC-51, ORC-81), the same in all three families (ORC-25, acceptance 33).
func TestBytes(t *testing.T) {
	r := newRig(t, Options{})
	run := r.call("ann", `"call-7"`, with(&stopper{}))
	id := run.ID().String()
	at := regexp.MustCompile(`:\d{10}\.\d{1,6}([,}])`)
	families := []string{"/orchestrate", "/cancellation", "/v1/cancellation"}
	get := func(when, want string) {
		t.Helper()
		for _, f := range families {
			a := r.do("GET", f+"/status/call-7", "op", "")
			a.body = at.ReplaceAllString(a.body, ":T$1")
			r.want(a, 200, want)
			if a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: headers %v", when, a.header)
			}
			link := ""
			if f == "/cancellation" {
				link = `</v1/cancellation/status/call-7>; rel="successor-version"`
			}
			if got := a.header.Get("Link"); got != link {
				t.Errorf("%s: Link %q, want %q (ORC-31)", f, got, link)
			}
		}
	}
	get("before", `{"name":"tool:slow","registered_at":T,"cancelled":false,"run":"`+id+`","request_id":"call-7","protocol":"mcp","kind":"call","parent":null,"outcome":"pending","work":"running","verdict":null}`)
	r.want(r.cancel("op", `{"requestId":"call-7","reason":"a <b> & c","wait":5}`), 200,
		`{"status":"cancelled","requestId":"call-7","reason":"a <b> & c","run":"`+id+`","affected":true,"pending":false,"work":"stopped","verdict":"confirmed"}`)
	for _, f := range families {
		r.want(r.do("POST", f+"/cancel", "op", `{"request_id":"call-7","reason":"again"}`), 200,
			`{"status":"cancelled","requestId":"call-7","reason":"again","run":"`+id+`","affected":false,"pending":false,"work":"stopped","verdict":"confirmed"}`)
	}
	get("after", `{"name":"tool:slow","registered_at":T,"cancelled":true,"cancelled_at":T,"cancel_reason":"a <b> & c","run":"`+id+`","request_id":"call-7","protocol":"mcp","kind":"call","parent":null,"outcome":"cancelled","work":"stopped","verdict":"confirmed","cause":"operator","finished_at":T,"late_result":false}`)
}

// ORC-18: both keys are there after a cancel without a reason.
func TestCancelledWithoutReason(t *testing.T) {
	r := newRig(t, Options{})
	r.call("ann", `7`)
	r.cancel("op", `{"requestId":"7"}`)
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.status("op", "7").body), &got); err != nil {
		t.Fatal(err)
	}
	if string(got["cancel_reason"]) != "null" || got["cancelled_at"] == nil || string(got["request_id"]) != "7" {
		t.Errorf("status %s", got)
	}
}

func TestUnixTime(t *testing.T) {
	for us, want := range map[int64]string{0: "0.0", 1: "0.000001", 1_795_000_000_000_000: "1795000000.0", 1_795_000_000_120_000: "1795000000.12", -1: "-0.000001"} {
		got, _ := unixTime(microseconds(us)).MarshalJSON()
		if string(got) != want {
			t.Errorf("%d: %s, want %s (ORC-16)", us, got, want)
		}
	}
}
