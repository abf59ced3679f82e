package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/belayhq/belay/auth"
)

// A door: who, may they, how often, whose.
func Example() {
	text, hash := auth.NewToken() // belay token new
	who, err := auth.New(auth.Config{Tokens: []auth.Token{{Name: "alice", Hash: hash, Roles: []string{"user"}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer who.Close()
	limiter := auth.NewLimiter(auth.Limits{})

	door := func(w http.ResponseWriter, r *http.Request) {
		p, err := who.Authenticate(r)
		if err == nil {
			err = p.Need(auth.RunsCancelOwn)
		}
		if err == nil {
			err = limiter.Take(p)
		}
		if err != nil {
			answer := auth.Describe(err)
			answer.Header(w.Header())
			http.Error(w, answer.Detail, answer.Status)
			return
		}
		fmt.Fprintln(w, p.Name, p.MayCancel("alice"), p.MayCancel("bob"))
	}

	for _, token := range []string{text, "guessed"} {
		r := httptest.NewRequest(http.MethodPost, "/v1/cancel", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		door(w, r)
		fmt.Println(w.Code, w.Body.String())
	}
	// Output:
	// 200 alice true false
	//
	// 401 Invalid authentication credentials
}
