package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// algorithms is the whole list: one for each kind of key. "none" is not in it,
// and no option puts it there.
var algorithms = []string{algHS256, algRS256, algES256, algEdDSA}

// The algorithms.
const (
	algHS256 = "HS256"
	algRS256 = "RS256"
	algES256 = "ES256"
	algEdDSA = "EdDSA"
)

// Bounds on what a token says of itself.
const (
	maxKeyID  = 256
	maxClaims = 256           // values of a roles claim
	lastTime  = 253402300799. // 9999-12-31: what is later overflows in places
)

// issuer is one of the configuration, made ready.
type issuer struct {
	Issuer

	keys  *source
	check *jwt.Validator
	roles map[string]Set // a value of the roles claim -> permissions
	base  Set            // everybody's
}

// verifier knows all issuers and what they have signed.
type verifier struct {
	issuers map[string]*issuer // by the claim iss
	parser  *jwt.Parser
	cache   *cache
}

// newVerifier makes what it can and reports all that is wrong; the result is
// to be closed in any case.
func newVerifier(cfg *Config, r roles) (*verifier, error) {
	v := &verifier{
		issuers: map[string]*issuer{},
		// Claims are checked apart: each issuer has its own rules.
		parser: jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()),
		cache:  newCache(cfg.MaxCache),
	}
	var problems []error
	names := map[string]bool{}
	for _, given := range cfg.Issuers {
		i, err := newIssuer(given.withDefaults(), cfg, r)
		switch {
		case err != nil:
			problems = append(problems, err)
		case v.issuers[i.Issuer.Issuer] != nil || names[i.Name]:
			problems = append(problems, fmt.Errorf("%w: issuer %q: its name or its iss is another issuer's too", ErrConfig, i.Name))
			i.keys.close()
		default:
			v.issuers[i.Issuer.Issuer] = i
			names[i.Name] = true
		}
	}
	return v, errors.Join(problems...)
}

func newIssuer(given Issuer, cfg *Config, r roles) (*issuer, error) {
	if err := given.check(); err != nil {
		return nil, err
	}
	i := &issuer{Issuer: given, roles: map[string]Set{}}
	var err error
	if i.base, err = r.permissions(given.Default); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", given.Name, err)
	}
	for value, names := range given.Roles {
		if i.roles[value], err = r.permissions(names); err != nil {
			return nil, fmt.Errorf("issuer %s, role %.64q: %w", given.Name, value, err)
		}
	}
	i.check = jwt.NewValidator(
		jwt.WithIssuer(given.Issuer), jwt.WithAudience(given.Audience...),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(given.Leeway))
	if i.keys, err = newSource(&i.Issuer, cfg); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", given.Name, err)
	}
	return i, nil
}

func (v *verifier) close() {
	for _, i := range v.issuers {
		i.keys.close()
	}
}

// verify checks a token's signature and claims, and remembers a good one.
func (v *verifier) verify(ctx context.Context, text string, d *digest, now time.Time) (Principal, error) {
	var (
		from *issuer
		set  *keySet
		fail error
	)
	claims := jwt.MapClaims{} // a map: field names of a struct would match in any case
	t, err := v.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		var k key
		from, k, set, fail = v.keyFor(ctx, t, claims)
		return k.public, fail
	})
	switch {
	case fail != nil:
		return Principal{}, fail
	case err != nil && t != nil && t.Method != nil && !slices.Contains(algorithms, t.Method.Alg()):
		return Principal{}, ErrAlgorithm // the library calls it a wrong signature
	case err != nil:
		return Principal{}, why(err)
	}
	p, err := from.principal(claims)
	if err != nil {
		return Principal{}, err
	}
	v.cache.put(d, remembered{principal: p, keys: set, source: from.keys}, now)
	return p, nil
}

// keyFor chooses the key before anything in the token is believed. The key
// says which algorithm it is for, never the token: a public key cannot become
// somebody's HMAC secret.
func (v *verifier) keyFor(ctx context.Context, t *jwt.Token, claims jwt.MapClaims) (*issuer, key, *keySet, error) {
	// A critical extension that is not understood must be refused (RFC 7515
	// section 4.1.11), and none is. jku, x5u, jwk and x5c are never looked at.
	if _, ok := t.Header["crit"]; ok {
		return nil, key{}, nil, fmt.Errorf("%w: it has critical header extensions, none is known here", ErrMalformed)
	}
	if !accessType(t.Header["typ"]) {
		return nil, key{}, nil, fmt.Errorf("%w: its typ says that it is no access token", ErrMalformed)
	}
	iss, _ := claims["iss"].(string)
	from := v.issuers[iss]
	if from == nil {
		return nil, key{}, nil, ErrIssuer
	}
	id, given := "", false
	if value, ok := t.Header["kid"]; ok {
		if id, given = value.(string); !given || len(id) > maxKeyID {
			return nil, key{}, nil, fmt.Errorf("%w: kid is not a short text", ErrMalformed)
		}
	}
	k, set, err := from.keys.find(ctx, id, given, t.Method.Alg())
	if err != nil {
		return nil, key{}, nil, fmt.Errorf("issuer %s: %w", from.Name, err)
	}
	return from, k, set, nil
}

// accessType reports whether a token's typ lets it be a credential. Issuers sign
// other things with the same keys for the same audience, such as the notice that
// somebody has logged out (RFC 8725 section 3.11); what such a thing calls itself
// is the only difference.
func accessType(typ any) bool {
	switch typ := typ.(type) {
	case nil:
		return true
	case string:
		typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
		return typ == "" || typ == "jwt" || typ == "at+jwt" || typ == "jose"
	default:
		return false
	}
}

// principal checks the claims of a token whose signature is good.
func (i *issuer) principal(claims jwt.MapClaims) (Principal, error) {
	for _, name := range []string{"exp", "nbf", "iat"} {
		value, ok := claims[name]
		if !ok {
			continue // whether it must be there is the validator's question
		}
		if seconds, ok := value.(float64); !ok || !(seconds >= 0 && seconds <= lastTime) {
			return Principal{}, fmt.Errorf("%w: %s is not a time", ErrClaims, name)
		}
	}
	if err := i.check.Validate(claims); err != nil {
		return Principal{}, fmt.Errorf("%w (issuer %s)", why(err), i.Name)
	}
	// A token that is bound to a key (RFC 9449, RFC 8705) is worth nothing to a
	// thief elsewhere, and must not be here.
	if _, bound := claims["cnf"]; bound {
		return Principal{}, fmt.Errorf("%w: it is bound to a key (cnf), which a bearer does not show", ErrClaims)
	}
	// Many issuers let people write any address into their profile.
	if verified, _ := claims["email_verified"].(bool); i.Subject == "email" && !verified {
		return Principal{}, fmt.Errorf("%w: issuer %s has not verified the email that would be the name", ErrClaims, i.Name)
	}
	subject, _ := claims[i.Subject].(string)
	name := i.Name + ":" + subject
	// A space at its beginning would be lost behind the colon for no reader.
	if subject == "" || strings.TrimSpace(subject) != subject || !goodName(name) {
		return Principal{}, fmt.Errorf("%w: %s of issuer %s is no name: it has to be printable text of 1 to %d bytes", ErrClaims, i.Subject, i.Name, maxName-len(i.Name)-1)
	}
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil {
		return Principal{}, fmt.Errorf("%w: exp", ErrClaims) // the validator has seen it
	}
	may := i.base
	for _, value := range texts(claim(claims, i.RolesClaim)) {
		may = may.union(i.roles[value])
	}
	return Principal{Name: name, Method: ByJWT, Expires: exp.Add(i.Leeway), may: may}, nil
}

// claim is the value of a claim, or of a path into objects.
func claim(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}
	first, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	inner, _ := claims[first].(map[string]any)
	return claim(inner, rest)
}

// texts is a list of texts, or one text parted at its spaces; what is of
// another type means nothing.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		list := strings.Fields(v)
		return list[:min(len(list), maxClaims)]
	case []any:
		var list []string
		for _, e := range v[:min(len(v), maxClaims)] {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return list
	default:
		return nil
	}
}

// why turns the library's errors into ours. Its texts are dropped: some repeat
// what the token says.
func why(err error) error {
	for _, c := range []struct{ theirs, ours error }{
		{jwt.ErrTokenMalformed, ErrMalformed},
		{jwt.ErrTokenSignatureInvalid, ErrSignature},
		{jwt.ErrTokenUnverifiable, ErrAlgorithm},
		{jwt.ErrTokenInvalidIssuer, ErrIssuer},
		{jwt.ErrTokenInvalidAudience, ErrAudience},
		{jwt.ErrTokenExpired, ErrExpired},
		{jwt.ErrTokenNotValidYet, ErrNotYetValid},
		{jwt.ErrTokenUsedBeforeIssued, ErrNotYetValid},
	} {
		if errors.Is(err, c.theirs) {
			return c.ours
		}
	}
	return ErrClaims
}
