package rap

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// CheckURL says whether a URL of a message can be used: absolute, http or https,
// with a host, without user information, and of at most [MaxURL] bytes. Whether
// its address may be connected to is another question, which whoever connects
// asks when it does.
func CheckURL(raw string) (*url.URL, error) {
	if len(raw) > MaxURL {
		return nil, fmt.Errorf("%w: a URL of %d bytes, at most %d are allowed", ErrMalformed, len(raw), MaxURL)
	}
	if strings.ContainsFunc(raw, unicode.IsControl) || strings.ContainsRune(raw, ' ') {
		return nil, fmt.Errorf("%w: a URL with spaces or control characters", ErrMalformed)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		// The error of url.Parse quotes the URL, which may be a secret (RAP-40).
		return nil, fmt.Errorf("%w: a URL that cannot be parsed", ErrMalformed)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: a URL must begin with http:// or https://", ErrMalformed)
	case u.Hostname() == "" || u.Opaque != "":
		return nil, fmt.Errorf("%w: a URL must name a host", ErrMalformed)
	case u.User != nil:
		return nil, fmt.Errorf("%w: a URL must not carry a user name", ErrMalformed)
	}
	return u, nil
}

// Base is the address of a tool server: the URL below which it is discovered,
// told of cancels and closed threads, and asked to migrate (RAP-8).
type Base struct{ url url.URL }

// ParseBase reads the address of a tool server. It may have a path, but neither
// query nor fragment.
func ParseBase(raw string) (Base, error) {
	u, err := CheckURL(raw)
	if err != nil {
		return Base{}, err
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return Base{}, fmt.Errorf("%w: the address of a tool server has neither query nor fragment: %q", ErrMalformed, raw)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return Base{*u}, nil
}

// String is the address without a slash at its end.
func (b Base) String() string { return b.url.String() }

// At is the URL of one of the Path constants.
func (b Base) At(path string) string { return b.url.String() + path }
