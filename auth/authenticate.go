package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Authenticator finds out who sends requests. It is safe for concurrent use
// and never changes; a new configuration is a new Authenticator.
type Authenticator struct {
	cfg    Config
	tokens *tokens
	jwts   *verifier
	certs  certificates
	socket Principal
}

// New checks the configuration and reads the keys that lie in files. Keys over
// the network are fetched when the first token needs them: an issuer that is
// down does not keep Belay from starting. Errors wrap [ErrConfig], and name all
// that is wrong but never a token or secret. Close must be called.
func New(cfg Config) (*Authenticator, error) {
	cfg = cfg.withDefaults()
	a := &Authenticator{cfg: cfg, tokens: newTokens()}
	r, err := makeRoles(cfg.Roles)
	if err != nil {
		return nil, err
	}
	var problems []error
	for i := range cfg.Tokens {
		problems = append(problems, a.addToken(&cfg.Tokens[i], r))
	}
	problems = append(problems, a.addLocal())
	a.certs, err = newCertificates(cfg.Certificates, r)
	problems = append(problems, err)
	a.jwts, err = newVerifier(&cfg, r)
	problems = append(problems, err)
	if err := errors.Join(problems...); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// configured makes a principal whose name stands in the configuration.
func configured(what, name string, m Method, names []string, r roles) (Principal, error) {
	if !plainName(name) || strings.EqualFold(name, LocalName) {
		return Principal{}, fmt.Errorf("%w: %s: %.64q cannot be a principal's name: 1 to %d of A-Z a-z 0-9 . _ @ -, and not %q", ErrConfig, what, name, maxPlain, LocalName)
	}
	may, err := r.permissions(names)
	if err != nil {
		return Principal{}, fmt.Errorf("%s of %s: %w", what, name, err)
	}
	return Principal{Name: name, Method: m, may: may}, nil
}

func (a *Authenticator) addToken(t *Token, r roles) error {
	p, err := configured("token", t.Name, ByToken, t.Roles, r)
	if err != nil {
		return err
	}
	p.Expires = t.Expires
	d, err := parseHash(t.Hash)
	if err != nil {
		return fmt.Errorf("token of %s: %w", t.Name, err)
	}
	return a.tokens.add(d, p)
}

// addLocal lets this machine's user in.
func (a *Authenticator) addLocal() error {
	if a.cfg.Socket {
		a.socket = Principal{Name: LocalName, Method: BySocket, may: everything()}
	}
	if a.cfg.LocalToken == "" {
		return nil
	}
	if !wellFormed(a.cfg.LocalToken) {
		return fmt.Errorf("%w: the local token is not one that Belay made", ErrConfig)
	}
	return a.tokens.add(digestOf(a.cfg.LocalToken), Principal{Name: LocalName, Method: ByLocalToken, may: everything()})
}

// Close ends what fetches keys and waits for it. Requests that are being
// authenticated get an error. It may be called more than once.
func (a *Authenticator) Close() {
	if a.jwts != nil {
		a.jwts.close()
	}
}

// Authenticate says who sent the request. It looks at the Authorization
// header; where there is none, at the client's certificate; and then at the
// unix socket's other end. What is there decides: bad credentials are not made
// good by the next kind.
//
// Errors wrap [ErrUnauthenticated], or [ErrUnavailable] when the keys of the
// token's issuer cannot be had. They hold nothing that came from the request
// but names that were checked, so that they can be logged. [Describe] is what
// the caller is told. It blocks only for a token whose key is not known yet, at
// most the issuer's Timeout or the request's context.
//
// Whoever is known to speak from inside a run ([WithPeer]) is confined, whatever
// they show: a token that an agent finds does not make it its user.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	p, err := a.authenticate(r)
	if err != nil {
		a.cfg.Log.DebugContext(r.Context(), "credentials refused", "error", err, "from", r.RemoteAddr)
		return Principal{}, err
	}
	return p.Confined(insideOf(r.Context())...), nil
}

func (a *Authenticator) authenticate(r *http.Request) (Principal, error) {
	token, err := bearer(r, a.cfg.MaxToken)
	switch {
	case err != nil:
		return Principal{}, err
	case token != "":
		return a.byToken(r, token)
	}
	if p, found, err := a.certs.find(r.TLS, time.Now()); found || err != nil {
		return p, err
	}
	if p, found, err := a.bySocket(r.Context()); found || err != nil {
		return p, err
	}
	if len(r.Header["Cookie"]) > 0 {
		return Principal{}, ErrCookie
	}
	return Principal{}, ErrNoCredentials
}

// byToken looks among the static tokens, then among the JWTs that were verified
// before; only then is a signature looked at.
func (a *Authenticator) byToken(r *http.Request, token string) (Principal, error) {
	now := time.Now()
	d := digestOf(token)
	p, err := a.tokens.find(&d, now)
	if !errors.Is(err, ErrUnknownToken) {
		return p, err
	}
	if len(a.jwts.issuers) == 0 || strings.Count(token, ".") != 2 {
		return Principal{}, err
	}
	if p, ok := a.jwts.cache.get(&d, now); ok {
		return p, nil
	}
	return a.jwts.verify(r.Context(), token, &d, now)
}
