package rap

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// ErrNoCredentials says that a request has nothing of the kind that an
// Authenticator looks at; [AnyOf] then asks the next.
var ErrNoCredentials = fmt.Errorf("%w: the request has no credentials", ErrUnauthenticated)

const (
	minToken = 16 // bytes of a bearer token: what is shorter is guessed
	maxToken = 8 << 10
)

// Bearer authenticates by tokens: the key is the token's text, the value its
// caller's name. Several tokens may have one name. It refuses tokens of fewer
// than 16 bytes, and keeps hashes only.
func Bearer(tokens map[string]string) (Authenticator, error) {
	b := &bearer{}
	for token, name := range tokens {
		if len(token) < minToken || len(token) > maxToken {
			return nil, fmt.Errorf("%w: the token of %q has %d bytes, it must have %d to %d", belay.ErrBadRequest, name, len(token), minToken, maxToken)
		}
		if name == "" {
			return nil, fmt.Errorf("%w: a token without a caller's name", belay.ErrBadRequest)
		}
		b.known = append(b.known, bearerToken{sha256.Sum256([]byte(token)), name})
	}
	return b, nil
}

type bearer struct{ known []bearerToken }

type bearerToken struct {
	hash [sha256.Size]byte
	name string
}

// Authenticate implements [Authenticator]. It compares with every token, each in
// constant time.
func (b *bearer) Authenticate(r *http.Request, _ func() ([]byte, error)) (string, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return "", ErrNoCredentials
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrNoCredentials
	}
	if len(headers) > 1 || len(token) > maxToken {
		return "", fmt.Errorf("%w: the Authorization header cannot be read", ErrUnauthenticated)
	}
	hash, name := sha256.Sum256([]byte(token)), ""
	for i := range b.known {
		if subtle.ConstantTimeCompare(b.known[i].hash[:], hash[:]) == 1 {
			name = b.known[i].name
		}
	}
	if name == "" {
		return "", fmt.Errorf("%w: nobody has this token", ErrUnauthenticated)
	}
	return name, nil
}

// Challenge implements [Authenticator].
func (*bearer) Challenge() string { return `Bearer realm="rap"` }

// Certificates authenticates by the client certificate that the TLS layer has
// verified: the key is a subject alternative name as "uri:spiffe://…",
// "dns:host.example" or "email:a@b.example", the value its caller's name. The
// server's tls.Config must verify client certificates.
func Certificates(names map[string]string) Authenticator { return certificates(names) }

type certificates map[string]string

// Authenticate implements [Authenticator].
func (c certificates) Authenticate(r *http.Request, _ func() ([]byte, error)) (string, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", ErrNoCredentials
	}
	if !slices.ContainsFunc(r.TLS.VerifiedChains, inTime) {
		return "", fmt.Errorf("%w: the client certificate has expired", ErrUnauthenticated)
	}
	leaf := r.TLS.VerifiedChains[0][0] // which all chains have
	for _, u := range leaf.URIs {
		if name, ok := c["uri:"+u.String()]; ok {
			return name, nil
		}
	}
	for _, dns := range leaf.DNSNames {
		if name, ok := c["dns:"+dns]; ok {
			return name, nil
		}
	}
	for _, email := range leaf.EmailAddresses {
		if name, ok := c["email:"+email]; ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: the client certificate names no caller", ErrUnauthenticated)
}

// inTime reports whether every certificate of the chain is valid now. The TLS layer has
// looked when the connection was made, and connections last for days.
func inTime(chain []*x509.Certificate) bool {
	now := time.Now()
	return !slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return now.Before(c.NotBefore) || now.After(c.NotAfter) })
}

// Challenge implements [Authenticator]. A certificate cannot be asked for by a
// header, but a 401 must have one.
func (certificates) Challenge() string { return `Mutual realm="rap"` }

// Loopback lets in everybody whose connection begins and ends on this machine, as
// the caller of that name, and nobody else (RAP-38). Behind a reverse proxy every
// connection does: never use it there.
func Loopback(name string) Authenticator { return loopback(name) }

type loopback string

// Authenticate implements [Authenticator].
func (l loopback) Authenticate(r *http.Request, _ func() ([]byte, error)) (string, error) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !isLoopback(local.String()) || !isLoopback(r.RemoteAddr) {
		return "", fmt.Errorf("%w: without credentials only this machine itself is served", ErrUnauthenticated)
	}
	return string(l), nil
}

// Challenge implements [Authenticator].
func (loopback) Challenge() string { return `Bearer realm="rap"` }

func isLoopback(address string) bool {
	to, err := netip.ParseAddrPort(address)
	return err == nil && to.Addr().Unmap().IsLoopback()
}

// AnyOf asks the Authenticators in this order until one finds credentials of its
// kind; that one decides, so that wrong credentials are not made good by others.
func AnyOf(list ...Authenticator) Authenticator { return anyOf(list) }

type anyOf []Authenticator

// Authenticate implements [Authenticator].
func (a anyOf) Authenticate(r *http.Request, body func() ([]byte, error)) (string, error) {
	for _, one := range a {
		name, err := one.Authenticate(r, body)
		if !errors.Is(err, ErrNoCredentials) {
			return name, err
		}
	}
	return "", ErrNoCredentials
}

// Challenge implements [Authenticator].
func (a anyOf) Challenge() string {
	var all []string
	for _, one := range a {
		all = append(all, one.Challenge())
	}
	return strings.Join(all, ", ")
}

// BearerToken signs requests with a token.
type BearerToken string

// Sign implements [Signer].
func (t BearerToken) Sign(r *http.Request, _ []byte) error {
	r.Header.Set("Authorization", "Bearer "+string(t))
	return nil
}
