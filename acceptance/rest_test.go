//go:build unix

package acceptance

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// web keeps many connections and follows no redirect: Belay sends none.
var web = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       60 * time.Second,
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request as somebody. Headers come in pairs; the value "-" leaves
// one out.
func (s *server) do(t testing.TB, method, path, who, body string, headers ...string) answer {
	t.Helper()
	a, err := s.try(method, path, who, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (s *server) try(method, path, who, body string, headers ...string) (answer, error) {
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+token(who))
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "-":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := web.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// cancelled is the answer to a cancel with Belay's additions (ORC-38).
type cancelled struct {
	Status    string         `json:"status"`
	RequestID string         `json:"requestId"`
	Reason    *string        `json:"reason"`
	Run       *belay.RunID   `json:"run"`
	Affected  bool           `json:"affected"`
	Pending   bool           `json:"pending"`
	Work      *belay.Work    `json:"work"`
	Verdict   *belay.Verdict `json:"verdict"`
	Outcome   belay.Outcome  `json:"outcome"`
}

// status is the answer to a status with Belay's additions (ORC-51).
type status struct {
	Name         *string         `json:"name"`
	RegisteredAt float64         `json:"registered_at"`
	Cancelled    bool            `json:"cancelled"`
	CancelledAt  *float64        `json:"cancelled_at"`
	CancelReason *string         `json:"cancel_reason"`
	Run          belay.RunID     `json:"run"`
	RequestID    json.RawMessage `json:"request_id"`
	Kind         belay.Kind      `json:"kind"`
	Outcome      belay.Outcome   `json:"outcome"`
	Work         belay.Work      `json:"work"`
	Verdict      *belay.Verdict  `json:"verdict"`
	Cause        belay.Cause     `json:"cause"`
	FinishedAt   *float64        `json:"finished_at"`
	LateResult   *bool           `json:"late_result"`
}

// several is the answer to an ambiguous id (ORC-74).
type several struct {
	Detail     string `json:"detail"`
	Candidates []struct {
		Run          belay.RunID `json:"run"`
		Name         string      `json:"name"`
		RegisteredAt float64     `json:"registered_at"`
	} `json:"candidates"`
	More int `json:"more"`
}

// cancel cancels by /orchestrate; extra are more members of the body.
func (s *server) cancel(t testing.TB, who, id string, extra ...string) cancelled {
	t.Helper()
	return into[cancelled](t, s.tryCancel(t, who, id, extra...), 200)
}

func (s *server) tryCancel(t testing.TB, who, id string, extra ...string) answer {
	t.Helper()
	return s.do(t, "POST", "/orchestrate/cancel", who, cancelBody(id, extra...))
}

func cancelBody(id string, extra ...string) string {
	text, _ := json.Marshal(id)
	return `{"requestId":` + strings.Join(append([]string{string(text)}, extra...), ",") + `}`
}

func (s *server) status(t testing.TB, who, id string) status {
	t.Helper()
	return into[status](t, s.tryStatus(t, who, id), 200)
}

func (s *server) tryStatus(t testing.TB, who, id string) answer {
	t.Helper()
	return s.do(t, "GET", "/orchestrate/status/"+url.PathEscape(id), who, "")
}

// receipt is a run's receipt by /v1.
func (s *server) receipt(t testing.TB, who string, run belay.RunID) belay.Receipt {
	t.Helper()
	return into[belay.Receipt](t, s.do(t, "GET", "/v1/receipts/"+run.String(), who, ""), 200)
}

// runs lists runs by /v1.
func (s *server) runs(t testing.TB, who, query string) []belay.Info {
	t.Helper()
	return into[struct{ Runs []belay.Info }](t, s.do(t, "GET", "/v1/runs"+query, who, ""), 200).Runs
}

// into decodes an answer of this status.
func into[T any](t testing.TB, a answer, want int) (v T) {
	t.Helper()
	if a.status != want {
		t.Fatalf("status %d, want %d: %s", a.status, want, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// want compares status and body exactly.
func want(t testing.TB, what string, a answer, status int, body string) {
	t.Helper()
	if a.status != status || a.body != body {
		t.Errorf("%s:\ngot  %d %s\nwant %d %s", what, a.status, a.body, status, body)
	}
}

// eventually polls; a test that waits in vain ends.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
