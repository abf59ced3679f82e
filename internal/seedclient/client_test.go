package seedclient

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// gateway answers everything with one body.
func gateway(t *testing.T, status int, kind, body string) *Client {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(web.Close)
	return &Client{Base: web.URL}
}

// TestStrict: what the page says is required, what it does not say is ignored.
func TestStrict(t *testing.T) {
	const js = "application/json"
	for body, good := range map[string]bool{
		`{"status":"cancelled","requestId":"a/b","reason":null}`:                      true,
		`{"status":"queued","requestId":"a/b","reason":null,"run":"x","more":[1,{}]}`: true,
		`{"status":"stopped","requestId":"a/b","reason":null}`:                        false,
		`{"status":"cancelled","requestId":"other","reason":null}`:                    false,
		`{"status":"cancelled","requestId":"a/b","reason":"why"}`:                     false,
		`{"status":"cancelled","requestId":"a/b"}`:                                    false,
		`{"status":"cancelled","requestId":7,"reason":null}`:                          false,
		`{"status":"cancelled","requestId":"a/b","reason":null}{}`:                    false,
		`["status"]`: false, `null`: false, ``: false,
	} {
		if _, err := gateway(t, 200, js, body).Cancel(t.Context(), "a/b", nil); (err == nil) != good {
			t.Errorf("cancel: %s: %v", body, err)
		}
	}
	for body, good := range map[string]bool{
		`{"name":null,"registered_at":1.5,"cancelled":false}`:                                                 true,
		`{"name":"tool","registered_at":1795000000.12,"cancelled":false,"run":"x"}`:                           true,
		`{"name":"tool","registered_at":1.5,"cancelled":true,"cancelled_at":2.0,"cancel_reason":null}`:        true,
		`{"name":"tool","registered_at":1.5,"cancelled":true,"cancelled_at":2.0,"cancel_reason":"why"}`:       true,
		`{"name":"tool","registered_at":1.5,"cancelled":true,"cancelled_at":2.0}`:                             false,
		`{"name":"tool","registered_at":1.5,"cancelled":true,"cancel_reason":"why"}`:                          false,
		`{"name":"tool","registered_at":1.5,"cancelled":false,"cancelled_at":2.0}`:                            false,
		`{"name":"tool","registered_at":1.5,"cancelled":false,"cancelled_at":null}`:                           false,
		`{"name":"tool","registered_at":1,"cancelled":false}`:                                                 false,
		`{"name":"tool","registered_at":"1.5","cancelled":false}`:                                             false,
		`{"name":7,"registered_at":1.5,"cancelled":false}`:                                                    false,
		`{"registered_at":1.5,"cancelled":false}`:                                                             false,
		`{"name":"tool","registered_at":1.5,"cancelled":"false"}`:                                             false,
		`{"name":"tool","registered_at":1.5,"cancelled":true,"cancelled_at":2.0,"cancel_reason":["because"]}`: false,
	} {
		if _, err := gateway(t, 200, js, body).Status(t.Context(), "x"); (err == nil) != good {
			t.Errorf("status: %s: %v", body, err)
		}
	}
	if _, err := gateway(t, 404, js, `{"detail":"Run not found"}`).Status(t.Context(), "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown run: %v", err)
	}
	for _, c := range []*Client{
		gateway(t, 404, js, `{"detail":"Not Found"}`), gateway(t, 404, "text/plain", "404 page not found"), gateway(t, 403, js, `{"detail":"Access denied"}`),
	} {
		_, err := c.Status(t.Context(), "x")
		if _, ok := errors.AsType[*Refusal](err); !ok {
			t.Errorf("refusal: %v", err)
		}
	}
	_, err := gateway(t, 200, "text/plain", `{"name":null,"registered_at":1.5,"cancelled":false}`).Status(t.Context(), "x")
	if err == nil || !strings.Contains(err.Error(), "text/plain") {
		t.Errorf("another media type: %v", err)
	}
}
