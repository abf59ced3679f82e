package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// certificates are the names in client certificates that mean somebody.
type certificates map[string]Principal

func newCertificates(list []Certificate, r roles) (certificates, error) {
	all := certificates{}
	var problems []error
	for _, c := range list {
		p, err := configured("certificate", c.Name, ByCertificate, c.Roles, r)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		kind, value, _ := strings.Cut(c.SAN, ":")
		if (kind != "uri" && kind != "dns" && kind != "email") || value == "" || strings.Contains(value, "*") {
			problems = append(problems, fmt.Errorf("%w: certificate of %s: %.200q is not uri:…, dns:… or email:… of one client", ErrConfig, c.Name, c.SAN))
			continue
		}
		san := kind + ":" + value
		if kind == "dns" {
			san = strings.ToLower(san)
		}
		if other, taken := all[san]; taken {
			problems = append(problems, fmt.Errorf("%w: certificate %q stands for %s and for %s", ErrConfig, san, other.Name, c.Name))
			continue
		}
		all[san] = p
	}
	return all, errors.Join(problems...)
}

// find is whom the client's certificate names. Only one that the TLS layer has
// verified counts; the server's tls.Config needs ClientCAs, and ClientAuth
// VerifyClientCertIfGiven or RequireAndVerifyClientCert. The common name is
// never looked at, as in every modern verifier.
func (c certificates) find(state *tls.ConnectionState, now time.Time) (p Principal, found bool, err error) {
	if len(c) == 0 || state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return Principal{}, false, nil
	}
	leaf := state.VerifiedChains[0][0] // which all chains have
	// A connection may outlive what opened it.
	until := validUntil(state.VerifiedChains)
	if now.After(until) {
		return Principal{}, false, fmt.Errorf("%w: the client certificate", ErrExpired)
	}
	for _, san := range sans(leaf) {
		named, ok := c[san]
		switch {
		case !ok:
		case found && named.Name != p.Name:
			return Principal{}, false, fmt.Errorf("%w: it names both %s and %s", ErrCertificate, p.Name, named.Name)
		case found:
			p.may = p.may.union(named.may)
		default:
			p, found = named, true
		}
	}
	if !found {
		return Principal{}, false, ErrCertificate
	}
	p.Expires = until
	return p, true, nil
}

// validUntil is when no chain is left of which every certificate is valid.
func validUntil(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(until) {
			until = first
		}
	}
	return until
}

func sans(leaf *x509.Certificate) []string {
	var all []string
	for _, u := range leaf.URIs {
		all = append(all, "uri:"+u.String())
	}
	for _, d := range leaf.DNSNames {
		all = append(all, "dns:"+strings.ToLower(d))
	}
	for _, e := range leaf.EmailAddresses {
		all = append(all, "email:"+e)
	}
	return all
}
