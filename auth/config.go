package auth

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Config says who there is. The zero Config knows nobody, and every request is
// refused.
type Config struct {
	Tokens       []Token       // static tokens
	Issuers      []Issuer      // of JWTs
	Certificates []Certificate // of mutual TLS

	// LocalToken is the text of this user's own token, as [LocalToken] returns
	// it; "" for none. Its principal is "local" and may do everything.
	LocalToken string

	// Socket takes the owner of this process, at the other end of a unix socket,
	// for "local", who may do everything; see [WithPeer].
	Socket bool

	// Roles are lists of permissions beside the built-in ones, which are admin
	// (everything), operator, user, observer and runtime.
	Roles map[string][]Permission

	MaxToken int // bytes of a token; 0: 8 KiB
	MaxCache int // verified JWTs that are remembered; 0: 10,000

	// Transport fetches the keys of issuers; nil: one of our own, without
	// connections that wait for a next request.
	Transport http.RoundTripper

	// Log gets why credentials were refused, at debug level, and keys that could
	// not be had, as warnings; nil: nothing.
	Log *slog.Logger
}

// Token is one static token. Several may have the same name: that is how one
// is replaced without a gap.
type Token struct {
	Name    string    // the principal; letters, digits, . _ @ -, at most 64, not "local". Required
	Hash    string    // as [HashToken] writes it. Required
	Roles   []string  // what it may do; none: nothing
	Expires time.Time // zero: never
}

// Issuer is somebody whose signed tokens are believed.
type Issuer struct {
	// Name goes before the subject in a principal's name: "corp:alice". Letters,
	// digits, . _ @ -, at most 32; one for each issuer. Required.
	Name string

	Issuer   string   // the claim "iss", exactly. Required
	Audience []string // the claim "aud" must have one of these. Required: else any client's token of that issuer would do

	// Where the keys come from: exactly one of these.
	Secret   []byte // HS256; at least 32 bytes
	PEM      []byte // one public key or certificate: RS256, ES256 or EdDSA by its kind
	KeyFile  string // a JWKS file, read again when it has changed
	KeyURL   string // a JWKS over https, or http on loopback
	Discover bool   // the URL is asked of Issuer/.well-known/openid-configuration

	// Subject is the claim that names the principal; "": sub. Choose one that the
	// issuer never gives to a second person; "email" counts only where the claim
	// email_verified is true.
	Subject string

	// RolesClaim is the claim with the roles: a list of texts, or one text with
	// spaces. "": roles. Where there is no claim of that name, dots go into
	// objects, as in realm_access.roles.
	RolesClaim string
	// Roles says which of its values mean which roles. A value that is not here
	// means nothing: a role called admin elsewhere is not Belay's.
	Roles map[string][]string
	// Default are the roles of everybody who has a good token.
	Default []string

	Leeway   time.Duration // how far clocks may differ; 0: 30 s; at most 5 min
	Refresh  time.Duration // keys are read again after that; 0: 15 min
	Again    time.Duration // at the least between two reads, whatever unknown keys are asked for; 0: 10 s
	MaxStale time.Duration // keys that could not be read again are trusted that long; 0: 24 h
	Timeout  time.Duration // for one read; 0: 5 s
}

// Certificate says which principal a client certificate stands for.
type Certificate struct {
	SAN   string   // "uri:spiffe://…", "dns:host.example" or "email:a@b.example", compared exactly. Required
	Name  string   // the principal, as in [Token]. Required
	Roles []string // what it may do
}

// Configured reports whether anybody beside this machine's own user can show
// who they are. Without it a server must not listen beyond loopback (DESIGN
// section 8).
func (c *Config) Configured() bool {
	return len(c.Tokens) > 0 || len(c.Issuers) > 0 || len(c.Certificates) > 0
}

// Bounds and defaults.
const (
	defaultMaxToken = 8 << 10
	defaultMaxCache = 10_000
	maxLeeway       = 5 * time.Minute
	maxIssuerName   = 32
	minSecret       = 32
)

func (c Config) withDefaults() Config {
	def(&c.MaxToken, defaultMaxToken)
	def(&c.MaxCache, defaultMaxCache)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (i Issuer) withDefaults() Issuer {
	def(&i.Subject, "sub")
	def(&i.RolesClaim, "roles")
	def(&i.Leeway, 30*time.Second)
	def(&i.Refresh, 15*time.Minute)
	def(&i.Again, 10*time.Second)
	def(&i.MaxStale, 24*time.Hour)
	def(&i.Timeout, 5*time.Second)
	return i
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// check refuses an issuer that would believe too much, or that cannot work.
func (i *Issuer) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: issuer %.64q: %s", ErrConfig, i.Name, fmt.Sprintf(format, args...))
	}
	sources := 0
	for _, given := range []bool{len(i.Secret) > 0, len(i.PEM) > 0, i.KeyFile != "", i.KeyURL != "", i.Discover} {
		if given {
			sources++
		}
	}
	switch {
	case !plainName(i.Name) || len(i.Name) > maxIssuerName:
		return bad("it needs a name of 1 to %d of A-Z a-z 0-9 . _ @ -", maxIssuerName)
	case i.Issuer == "":
		return bad("say which iss its tokens have")
	case len(i.Audience) == 0:
		return bad("say for which audience its tokens are made; without that, a token for any other service would be good here")
	case sources != 1:
		return bad("its keys come from exactly one of a secret, a PEM key, a JWKS file, a JWKS address and discovery; %d are given", sources)
	case len(i.Secret) > 0 && len(i.Secret) < minSecret:
		return bad("a secret of %d bytes can be guessed; use at least %d random ones", len(i.Secret), minSecret)
	case strings.Contains(string(i.Secret), "-----BEGIN"):
		return bad("the secret is a PEM block; a public key as a secret lets everybody sign")
	case i.Leeway < 0 || i.Leeway > maxLeeway:
		return bad("clocks may differ by 0 to %v, not %v", maxLeeway, i.Leeway)
	case i.Refresh < 0 || i.Again < 0 || i.MaxStale < 0 || i.Timeout < 0:
		return bad("a time is negative")
	}
	if slices.Contains(i.Audience, "") {
		return bad("an audience is empty")
	}
	if i.KeyURL != "" {
		if err := checkURL(i.KeyURL); err != nil {
			return bad("%v", err)
		}
	}
	if i.Discover {
		if err := checkURL(i.Issuer); err != nil {
			return bad("discovery: %v", err)
		}
	}
	return nil
}
