package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestHeader: ORC-34; RFC 6750: one Authorization header, the scheme Bearer.
func TestHeader(t *testing.T) {
	text, hash := NewToken()
	a := newAuth(t, Config{Tokens: []Token{{Name: "op", Hash: hash, Roles: []string{"admin"}}}})
	for _, c := range []struct {
		name   string
		header []string
		want   error
	}{
		{"good", []string{"Bearer " + text}, nil},
		{"scheme in another case", []string{"bEARER " + text}, nil},
		{"several spaces", []string{"Bearer    " + text}, nil},
		{"none", nil, ErrNoCredentials},
		{"empty", []string{""}, ErrMalformed},
		{"no token", []string{"Bearer"}, ErrMalformed},
		{"no token, space", []string{"Bearer "}, ErrMalformed},
		{"basic", []string{"Basic b3A6b3A="}, ErrMalformed},
		{"no scheme", []string{text}, ErrMalformed},
		{"tab", []string{"Bearer\t" + text}, ErrMalformed},
		{"trailing space", []string{"Bearer " + text + " "}, ErrMalformed},
		{"two tokens", []string{"Bearer " + text + ", Bearer " + text}, ErrMalformed},
		{"two headers", []string{"Bearer " + text, "Bearer " + text}, ErrMalformed},
		{"line break", []string{"Bearer " + text + "\nlevel=ERROR"}, ErrMalformed},
		{"only padding", []string{"Bearer ==="}, ErrMalformed},
		{"truncated", []string{"Bearer " + text[:len(text)-1]}, ErrUnknownToken},
		{"longer", []string{"Bearer " + text + "A"}, ErrUnknownToken},
		{"another case", []string{"Bearer " + strings.ToUpper(text)}, ErrUnknownToken},
		{"its hash", []string{"Bearer " + strings.TrimPrefix(hash, hashPrefix)}, ErrUnknownToken},
		{"oversized", []string{"Bearer " + strings.Repeat("a", defaultMaxToken+1)}, ErrTooLong},
		{"as long as can be", []string{"Bearer " + strings.Repeat("a", defaultMaxToken)}, ErrUnknownToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request("")
			if c.header != nil {
				r.Header["Authorization"] = c.header
			}
			p, err := a.Authenticate(r)
			if !errors.Is(err, c.want) || (err == nil) != (p.Name == "op") {
				t.Fatalf("got %v, %v; want %v", p, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), text[:20]) {
				t.Errorf("the error shows the token: %v", err)
			}
			if err != nil && Describe(err).Status != 401 {
				t.Errorf("status %d", Describe(err).Status)
			}
		})
	}
}

// TestTokenInQuery: a token in the query string is refused, a good header
// beside it or not (RFC 6750: not more than one method).
func TestTokenInQuery(t *testing.T) {
	text, hash := NewToken()
	a := newAuth(t, Config{Tokens: []Token{{Name: "op", Hash: hash}}})
	for query, refused := range map[string]bool{
		"access_token=" + text:          true,
		"ACCESS_TOKEN=x":                true,
		"access%5ftoken=x":              true,
		"a=1&token=" + text:             true,
		"a=1;token=" + text:             true,
		"cursor=" + text:                true,
		"cursor=" + "%62elay_x":         true,
		"api_key=1":                     true,
		"token":                         true,
		strings.Repeat("a", maxQuery+1): true,
		"cursor=abc&limit=5":            false,
		"progressToken=1":               false,
		"q=%zz":                         false,
	} {
		for _, header := range []string{"", text} {
			r := request(header)
			r.URL.RawQuery = query
			_, err := a.Authenticate(r)
			got := errors.Is(err, ErrTokenInQuery) || errors.Is(err, ErrMalformed)
			if got != refused {
				t.Errorf("query %.40q with header %t: %v", query, header != "", err)
			}
		}
	}
}

// TestCookie: ORC-34 and the sheet's table: cookies are no credentials.
func TestCookie(t *testing.T) {
	text, hash := NewToken()
	a := newAuth(t, Config{Tokens: []Token{{Name: "op", Hash: hash}}})
	r := request("")
	r.Header.Set("Cookie", "jwt_token="+text)
	_, err := a.Authenticate(r)
	if d := Describe(err); !errors.Is(err, ErrCookie) || d.Status != 401 || !strings.HasPrefix(d.Detail, "Cookie authentication not allowed") {
		t.Fatalf("%v: %+v", err, Describe(err))
	}
	r.Header.Set("Authorization", "Bearer "+text)
	if _, err := a.Authenticate(r); err != nil {
		t.Fatalf("a browser's cookie beside a good header: %v", err)
	}
}

// FuzzHeader: whatever comes in, a token has only a token's characters, is
// within the bound, and was in the header; nothing panics.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer a", "bearer  a.b.c=", "Basic x", "Bearer \x00", "Bearer a b", "Bearer =", "Beare\u212a x"} {
		f.Add(s, "a=1&token=2")
	}
	f.Fuzz(func(t *testing.T, value, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = query
		r.Header["Authorization"] = []string{value}
		token, err := bearer(r, 100)
		if (token == "") != (err != nil) {
			t.Fatalf("%q, %v", token, err)
		}
		if err != nil {
			if token != "" || !errors.Is(err, ErrUnauthenticated) {
				t.Fatalf("%q, %v", token, err)
			}
			return
		}
		if len(token) > 100 || !token68(token) || !strings.HasSuffix(value, " "+token) {
			t.Fatalf("token %q of %q", token, value)
		}
		if q, err := url.ParseQuery(query); err == nil && (q.Has("token") || q.Has("access_token")) {
			t.Fatalf("query %q passed", query)
		}
	})
}
