package auth

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxQuery bounds the query string that is looked through.
const maxQuery = 16 << 10

// queryNames are the parameters in which people put tokens.
var queryNames = []string{
	"access_token", "accesstoken", "api_key", "apikey", "auth_token", "authorization",
	"bearer", "bearer_token", "id_token", "jwt", "token",
}

// bearer takes the token out of a request: from one Authorization header, and
// from nowhere else (RFC 6750 section 2.1; its other two ways are refused, or
// not looked at). "" without error means that there is no such header.
func bearer(r *http.Request, limit int) (string, error) {
	if r.URL != nil && r.URL.RawQuery != "" {
		if err := noToken(r.URL.RawQuery); err != nil {
			return "", err
		}
	}
	// The map itself: Get would hide a second header, and proxies differ in
	// which of two they look at.
	switch values := r.Header["Authorization"]; len(values) {
	case 0:
		return "", nil
	case 1:
		return parseBearer(values[0], limit)
	default:
		return "", fmt.Errorf("%w: %d Authorization headers", ErrMalformed, len(values))
	}
}

// parseBearer reads "Bearer" 1*SP token68, the scheme in any case. Errors hold
// nothing of the value.
func parseBearer(value string, limit int) (string, error) {
	const scheme = "bearer"
	if len(value) > limit+len(scheme)+1 {
		return "", fmt.Errorf("%w: %d bytes of Authorization, at most %d are read", ErrTooLong, len(value), limit+len(scheme)+1)
	}
	if len(value) <= len(scheme) || value[len(scheme)] != ' ' || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", fmt.Errorf("%w: want Authorization: Bearer and a token", ErrMalformed)
	}
	token := strings.TrimLeft(value[len(scheme):], " ")
	if !token68(token) {
		return "", fmt.Errorf("%w: the token is empty or has a character that none has", ErrMalformed)
	}
	return token, nil
}

// token68 is RFC 9110's word for the characters of a token: letters, digits,
// - . _ ~ + / and = at the end.
func token68(s string) bool {
	body := strings.TrimRight(s, "=")
	if body == "" {
		return false
	}
	for i := range len(body) {
		c := body[i]
		if !alphanumeric(c) && !strings.ContainsRune("-._~+/", rune(c)) {
			return false
		}
	}
	return true
}

// noToken refuses a query string that carries a token, whatever else the
// request brings: it is in the access log of every proxy by now.
func noToken(raw string) error {
	if len(raw) > maxQuery {
		return fmt.Errorf("%w: %d bytes of query string, at most %d are read", ErrMalformed, len(raw), maxQuery)
	}
	for rest := raw; rest != ""; {
		var part string
		// Some peers part at ";" as well.
		if i := strings.IndexAny(rest, "&;"); i >= 0 {
			part, rest = rest[:i], rest[i+1:]
		} else {
			part, rest = rest, ""
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = unescaped(name), unescaped(value)
		if names(name) || tokenLike(name) || tokenLike(value) {
			return ErrTokenInQuery
		}
	}
	return nil
}

// tokenLike reports whether a text is one of our tokens, or a JWT: that begins
// with {" in base64.
func tokenLike(s string) bool {
	return strings.HasPrefix(s, TokenPrefix) || strings.HasPrefix(s, "eyJ") && strings.Count(s, ".") == 2
}

// unescaped is s decoded, or s itself where that cannot be.
func unescaped(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	if text, err := url.QueryUnescape(s); err == nil {
		return text
	}
	return s
}

func names(name string) bool {
	for _, n := range queryNames {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}
