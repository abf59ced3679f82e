package config

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/belayhq/belay/auth"
)

// Auth says who there is, and what they may do. It has been checked by package
// auth when the configuration was loaded.
type Auth struct {
	Tokens       []Token                `key:"tokens"`
	Issuers      []Issuer               `key:"issuers"`
	Certificates []Certificate          `key:"certificates"`
	Roles        map[string]Permissions `key:"roles"` // beside the built-in ones
}

// Token is a static token.
type Token struct {
	Name    string    `key:"name"`                // the principal
	Hash    string    `key:"hash" secret:"value"` // as belay token new prints it
	Roles   []string  `key:"roles"`
	Expires time.Time `key:"expires"` // the first moment at which it is no longer good; zero: never
}

// Issuer is somebody whose signed tokens are believed. Its keys come from
// exactly one of Secret, Key, JWKSFile, JWKSURL and Discover.
type Issuer struct {
	Name     string   `key:"name"` // goes before the subject: corp:alice
	Issuer   string   `key:"issuer"`
	Audience []string `key:"audience"`

	Secret   string `key:"secret" secret:"value"` // HS256
	Key      string `key:"key" path:"file"`       // PEM: RS256, ES256 or EdDSA, by its kind
	JWKSFile string `key:"jwks_file" path:"file"`
	JWKSURL  string `key:"jwks_url" secret:"value"`
	Discover bool   `key:"discover" default:"false"`

	Subject      string              `key:"subject" default:"sub"`
	RolesClaim   string              `key:"roles_claim" default:"roles"`
	Roles        map[string][]string `key:"roles"` // a value of that claim: roles here
	DefaultRoles []string            `key:"default_roles"`

	Leeway   time.Duration `key:"leeway" default:"30s" above:"0s"`
	Refresh  time.Duration `key:"refresh" default:"15m" above:"0s"`
	Again    time.Duration `key:"again" default:"10s" above:"0s"`
	MaxStale time.Duration `key:"max_stale" default:"24h" above:"0s"`
	Timeout  time.Duration `key:"timeout" default:"5s" above:"0s"`

	pem []byte // what stands in Key
}

// Certificate is whom a client's certificate names.
type Certificate struct {
	SAN   string   `key:"san"`
	Name  string   `key:"name"`
	Roles []string `key:"roles"`
}

// Configured reports whether anybody beside this machine's own user can show who
// they are.
func (a *Auth) Configured() bool {
	c := a.Config()
	return c.Configured()
}

// Equal reports whether two know the same people, by the same keys, with the
// same rights.
func (a *Auth) Equal(b *Auth) bool { return reflect.DeepEqual(a, b) }

// Config is the same for package auth. What is not of the file (LocalToken,
// Socket, Log) is left to the caller.
func (a *Auth) Config() auth.Config {
	var c auth.Config
	for _, t := range a.Tokens {
		c.Tokens = append(c.Tokens, auth.Token{Name: t.Name, Hash: t.Hash, Roles: slices.Clone(t.Roles), Expires: t.Expires})
	}
	for i := range a.Issuers {
		c.Issuers = append(c.Issuers, a.Issuers[i].config())
	}
	for _, s := range a.Certificates {
		c.Certificates = append(c.Certificates, auth.Certificate{SAN: s.SAN, Name: s.Name, Roles: slices.Clone(s.Roles)})
	}
	for name, list := range a.Roles {
		if c.Roles == nil {
			c.Roles = map[string][]auth.Permission{}
		}
		c.Roles[name] = list.auth()
	}
	return c
}

func (i *Issuer) config() auth.Issuer {
	return auth.Issuer{
		Name: i.Name, Issuer: i.Issuer, Audience: slices.Clone(i.Audience),
		Secret: []byte(i.Secret), PEM: slices.Clone(i.pem), KeyFile: i.JWKSFile, KeyURL: i.JWKSURL, Discover: i.Discover,
		Subject: i.Subject, RolesClaim: i.RolesClaim, Roles: maps.Clone(i.Roles), Default: slices.Clone(i.DefaultRoles),
		Leeway: i.Leeway, Refresh: i.Refresh, Again: i.Again, MaxStale: i.MaxStale, Timeout: i.Timeout,
	}
}

// Permissions are words of package auth's table.
type Permissions []string

func (p Permissions) auth() []auth.Permission {
	list := make([]auth.Permission, len(p))
	for i, word := range p {
		list[i] = auth.Permission(word)
	}
	return list
}

// decode reads permissions, each of which must be one.
func (p *Permissions) decode(d *decoder, at spot, f field) {
	*p = nil
	before := len(d.problems)
	d.list(reflect.ValueOf((*[]string)(p)).Elem(), at, f)
	if len(d.problems) > before {
		return
	}
	known := Permissions{}
	for _, k := range auth.Permissions() {
		known = append(known, string(k))
	}
	for i, word := range *p {
		if in := at.item(i); !slices.Contains(known, word) {
			d.failf(in, "%s: there is no permission %q (%s)", f.key, in.value.text, oneOf(in.value.text, known))
		}
	}
}
