package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay/auth"
)

// under is the spot of a key in a map; at the map itself if it is not there.
func (s spot) under(key string) spot {
	for _, p := range slices.Backward(s.value.pairs) {
		if p.key.text == key {
			return spot{key: p.key, value: p.value}
		}
	}
	return s.atItem()
}

// item is the spot of an entry of a list.
func (s spot) item(i int) spot {
	if s.value.kind == kindList && i < len(s.value.items) {
		return spot{key: s.key, value: s.value.items[i]}
	}
	return s
}

// atItem is the spot of an entry of a list that is a map: its first key.
func (s spot) atItem() spot {
	if s.value != nil && s.value.kind == kindMap && len(s.value.pairs) > 0 {
		return spot{key: s.value.pairs[0].key, secret: true}
	}
	return s.atKey()
}

// decode reads who there is, and has package auth say what cannot be, piece by
// piece, so that each is said where it stands.
func (a *Auth) decode(d *decoder, at spot, f field) {
	before := len(d.problems)
	d.fields(reflect.ValueOf(a).Elem(), at, f)
	if len(d.problems) > before || at.value.kind != kindMap {
		return
	}
	roles := at.under("roles")
	if roles.value.is(kindMap) {
		for _, p := range roles.value.pairs { // in the order of the file
			c := auth.Config{Roles: map[string][]auth.Permission{p.key.text: a.Roles[p.key.text].auth()}}
			d.authFails(spot{key: p.key, secret: true}, &c, false) // keys are as they stand there
		}
	}
	if len(d.problems) > before {
		return
	}
	for i := range a.Tokens {
		d.token(a, &a.Tokens[i], at.under("tokens").item(i))
	}
	for i := range a.Issuers {
		d.issuer(a, &a.Issuers[i], at.under("issuers").item(i))
	}
	for i := range a.Certificates {
		s := &a.Certificates[i]
		c := auth.Config{Roles: a.Config().Roles, Certificates: []auth.Certificate{{SAN: s.SAN, Name: s.Name, Roles: s.Roles}}}
		in := at.under("certificates").item(i)
		d.authFails(in.atItem(), &c, in.value.tainted())
		d.powerless("certificate", s.Name, s.Roles)
	}
	if len(d.problems) == before { // what one piece has in common with another
		c := a.Config()
		d.authFails(at.atKey(), &c, at.value.tainted())
	}
}

// authFails reports what package auth says of a configuration. It shows no hash
// and no secret, but other values in quotes, which stay out if the piece of the
// file is tainted.
func (d *decoder) authFails(at spot, c *auth.Config, tainted bool) bool {
	a, err := auth.New(*c)
	if err == nil {
		a.Close()
		return false
	}
	for line := range strings.Lines(err.Error()) { // problems are joined by line breaks
		text := strings.ReplaceAll(strings.TrimSpace(line), auth.ErrConfig.Error()+": ", "")
		if tainted {
			text = quoted.ReplaceAllString(text, `"…"`)
		}
		d.failf(at, "%s", text)
	}
	return true
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// tainted reports whether a variable stands in a value that messages may show.
func (n *node) tainted() bool {
	if n == nil {
		return false
	}
	for _, p := range n.pairs {
		if p.key.text != "secret" && p.key.text != "hash" && p.value.tainted() {
			return true
		}
	}
	return slices.ContainsFunc(n.items, (*node).tainted) || strings.Contains(n.text, "${")
}

// harmless is the hash of no token.
const harmless = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// token checks one token, each of its settings beside others that are right.
func (d *decoder) token(a *Auth, t *Token, at spot) {
	tainted := at.value.tainted()
	if at.value.get("hash") == nil {
		d.failf(at.atItem(), "this token has no hash; belay token new makes a token and prints its hash")
		return
	}
	name := auth.Config{Tokens: []auth.Token{{Name: t.Name, Hash: harmless}}}
	if d.authFails(at.under("name").shown(), &name, tainted) {
		return
	}
	hash := auth.Config{Tokens: []auth.Token{{Name: t.Name, Hash: t.Hash}}}
	d.authFails(spot{key: at.under("hash").key, value: at.under("hash").value, secret: true}, &hash, tainted)
	roles := auth.Config{Roles: a.Config().Roles, Tokens: []auth.Token{{Name: t.Name, Hash: harmless, Roles: t.Roles}}}
	d.authFails(at.under("roles").shown(), &roles, tainted)
	if !t.Expires.IsZero() && !time.Now().Before(t.Expires) {
		d.notef("the token of %s has expired on %s; it is refused, and can be removed", t.Name, t.Expires.Format(time.RFC3339))
	}
	d.powerless("token", t.Name, t.Roles)
}

// shown is a spot whose value may be shown, unless something of a variable could
// be in it.
func (s spot) shown() spot {
	s.secret = s.secret || s.value != nil && strings.Contains(s.value.text, "${")
	return s
}

// powerless notes that somebody may do nothing: it is rarely meant.
func (d *decoder) powerless(what, name string, roles []string) {
	if len(roles) == 0 {
		d.notef("the %s of %s has no roles, so it may do nothing", what, name)
	}
}

// issuer reads the key of an issuer and checks it.
func (d *decoder) issuer(a *Auth, i *Issuer, at spot) {
	before := len(d.problems)
	if i.Key != "" {
		text, err := readKey(i.Key)
		if err != nil {
			d.failf(at.under("key").shown(), "key: %v", err)
			return
		}
		i.pem = text
		d.files = append(d.files, i.Key)
	}
	if i.JWKSFile != "" {
		if _, err := readKey(i.JWKSFile); err != nil {
			d.failf(at.under("jwks_file").shown(), "jwks_file: %v", err)
			return
		}
	}
	// Addresses here, because they may hold a password and auth shows them.
	if i.JWKSURL != "" && badKeyURL(i.JWKSURL) {
		d.failf(at.under("jwks_url").atKey(), "jwks_url has to be an https address without a password in it; http is for loopback only")
	}
	if i.Discover && badKeyURL(i.Issuer) {
		d.failf(at.under("issuer").atKey(), "issuer: with discover it has to be an https address without a password in it; http is for loopback only")
	}
	if len(d.problems) > before {
		return
	}
	c := auth.Config{Roles: a.Config().Roles, Issuers: []auth.Issuer{i.config()}}
	switch {
	case d.authFails(at.atItem(), &c, at.value.tainted()):
	case len(i.Roles) == 0 && len(i.DefaultRoles) == 0:
		d.notef("issuer %s gives nobody a role (roles and default_roles are empty), so its people may do nothing", i.Name)
	case slices.Contains(i.DefaultRoles, "admin"):
		d.notef("issuer %s makes everybody an admin (default_roles) who has a token of it for this audience", i.Name)
	}
}

// badKeyURL reports whether keys could not be trusted from an address.
func badKeyURL(text string) bool {
	u, err := url.Parse(text)
	return err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !loopbackHost(u.Hostname()))
}

// maxKeyFile is more than any key or chain of certificates has.
const maxKeyFile = 256 << 10

// readKey reads a small plain file. Errors show neither its name, which may be
// the key itself by mistake, nor what is in it.
func readKey(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, nameless(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a plain file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nameless(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("it is longer than %d bytes", maxKeyFile)
	}
	return text, nameless(err)
}

// nameless is an error of a file without the file's name.
func nameless(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// checkSettings checks what keys of one file must have in common, if each of
// them is right.
func (d *decoder) checkSettings(f *file, root spot, flag string) {
	if len(d.problems) > 0 || root.value.kind != kindMap {
		return
	}
	if root.value.get("tls") != nil {
		d.checkTLS(&f.TLS, root.under("tls"))
	}
	if c := f.RAP.SigV4; c != nil {
		d.rapCallers(c, root.under("rap").under("sigv4"))
	}
	for _, at := range []struct{ key, address string }{{"callback_url", f.RAP.Callback}, {"base_url", f.RAP.BaseURL}} {
		if at.address == "" {
			continue
		}
		if bad := badBase(at.address); bad != "" {
			d.failf(root.under("rap").under(at.key).atKey(), "rap.%s %s", at.key, bad)
		}
	}
	d.checkDoors(f, root, flag)
	d.checkNames(f, root)
}

// checkTLS checks that the files of tls: are there and fit each other.
func (d *decoder) checkTLS(t *TLS, at spot) {
	switch {
	case *t == TLS{}:
		return
	case t.Cert == "" || t.Key == "":
		d.failf(at.atKey(), "tls needs both cert and key")
		return
	}
	cert, err := readKey(t.Cert)
	if err != nil {
		d.failf(at.under("cert").shown(), "cert: %v", err)
		return
	}
	key, err := readKey(t.Key)
	if err != nil {
		d.failf(at.under("key").shown(), "key: %v", err)
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		d.failf(at.under("cert").shown(), "cert and key do not make a certificate: %s", strings.TrimPrefix(err.Error(), "tls: "))
	}
	if t.ClientCA == "" {
		return
	}
	if _, err := authorities(t.ClientCA); err != nil {
		d.failf(at.under("client_ca").shown(), "client_ca: %v", err)
	}
}

// authorities reads the certificates of those who vouch for clients.
func authorities(name string) (*x509.CertPool, error) {
	text, err := readKey(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("there is no certificate in it")
	}
	return pool, nil
}

// checkDoors checks what listen, tls and auth must have in common. flag is the
// address of the command line, which goes before the file's.
func (d *decoder) checkDoors(f *file, root spot, flag string) {
	address, at := f.Listen.Value, root.under("listen").shown()
	if flag != "" {
		address, at = flag, spot{}
	}
	socket := strings.HasPrefix(address, "unix:")
	open := address != "" && !socket && !loopbackAddress(address)
	switch {
	case open && !f.Auth.Configured():
		d.failf(at, "listen: %q can be reached from other machines, and nobody has to say who they are: add auth: with tokens, issuers or certificates, or listen on 127.0.0.1", address)
	case open && !f.TLS.On():
		d.notef("%s can be reached from other machines and there is no tls: tokens and results travel in the clear, unless a proxy on this machine encrypts them", address)
	case socket && f.TLS.On():
		d.failf(at, "listen: a unix socket is not encrypted; leave out tls")
	}
	if len(f.Hosts) > 0 && !f.Auth.Configured() {
		d.notef("hosts names others than this machine, and nobody has to say who they are: if a proxy lets others in, all of them may call tools; add auth")
	}
	switch {
	case len(f.Auth.Certificates) > 0 && f.TLS.ClientCA == "":
		d.failf(root.under("auth").under("certificates").atKey(), "certificates: clients are asked for one only if tls says client_ca")
	case len(f.Auth.Certificates) == 0 && f.TLS.ClientCA != "":
		d.notef("tls says client_ca, and auth names no certificates: they prove nothing here")
	}
}

// checkNames checks the values of Host and Origin.
func (d *decoder) checkNames(f *file, root spot) {
	for i, host := range f.Hosts {
		if host == "" || strings.ContainsAny(host, "/ \t@") || host != "*" && strings.Contains(host, "*") {
			d.failf(root.under("hosts").item(i).shown(), `hosts: each is the name that callers use, "belay.example", or with its port, "belay.example:8443"; or "*" for any`)
		}
	}
	for i, origin := range f.Origins {
		u, err := url.Parse(origin)
		if origin != "*" && (err != nil || u.Host == "" || u.User != nil || strings.Contains(u.Host, "*") || u.Scheme+"://"+u.Host != origin) {
			d.failf(root.under("origins").item(i).shown(), `origins: each is what a browser sends as Origin, "https://console.example" (no path, no slash at the end); or "*" for any`)
		}
	}
}

func loopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err != nil || loopbackHost(host) // what is no address is refused by who listens
}

func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
