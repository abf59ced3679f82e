// Package egress says to which addresses this process may connect when somebody
// else has named them: webhooks, callback URLs, response URLs. It holds the one
// table of networks that are never, or only on request, allowed.
//
// # The model
//
// A [Policy] is asked twice. [Policy.Check] looks at the text of a URL, so that
// whoever brought it learns at once that it is no good. Client looks at the
// address of every connection when it is made, after names were resolved: a name
// that resolves to something else then is refused there.
//
// # Guarantees
//
//   - Link-local addresses, and the others at which clouds tell a machine its
//     secrets, are never connected to, whatever the policy.
//   - The zero Policy allows https to public addresses, and either scheme to this
//     machine itself.
//   - A Client follows no redirect, which would be a second address that nobody has
//     looked at; it uses no proxy and keeps no cookies.
//   - Errors hold no address that a name had: who reads them must not learn about
//     networks that only this process sees.
package egress

import (
	"errors"
	"net/netip"
	"net/url"
)

// Policy says which addresses are allowed.
type Policy struct {
	Private    bool // also private addresses: of the company's network
	Plain      bool // also http to other machines
	NoLoopback bool // not to this machine: for servers that strangers may name addresses at
	Off        bool // nowhere
}

// Errors of Check, and of a Client's requests.
var (
	// ErrAddress says that an address, or the one behind a name, is not allowed.
	ErrAddress = errors.New("its address is not one that may be connected to")
	// ErrPlain says that http is allowed to this machine only.
	ErrPlain = errors.New("http goes to this machine only; use https")
	// ErrOff says that nothing is allowed at all.
	ErrOff = errors.New("this server connects to nobody")
	// ErrURL says that a text is no URL to connect to.
	ErrURL = errors.New("it is no absolute http or https URL")
)

// special are addresses that are neither private by their flag nor public.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32",
	"2002::/16", "fec0::/10",
)

// metadata are addresses outside of the link-local ranges at which clouds tell a
// machine its secrets (seen in their documents in 2026): they are never allowed.
var metadata = prefixes("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128")

func prefixes(list ...string) (p []netip.Prefix) {
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// Allows reports whether the address may be connected to.
func (p Policy) Allows(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if p.Off {
		return false
	}
	for _, m := range metadata {
		if m.Contains(ip) {
			return false
		}
	}
	switch {
	case ip.IsLoopback():
		return !p.NoLoopback
	case !ip.IsGlobalUnicast(): // link-local, multicast, unspecified, broadcast
		return false
	case ip.IsPrivate():
		return p.Private
	}
	for _, s := range special {
		if s.Contains(ip) {
			return p.Private && s.Bits() == 10 && ip.Is4() // what carriers and overlay networks share
		}
	}
	return true
}

// Check looks at the text of a URL. The address behind a name is looked at when a
// connection is made.
func (p Policy) Check(text string) error {
	if p.Off {
		return ErrOff
	}
	u, err := url.Parse(text)
	if err != nil {
		return ErrURL
	}
	return p.CheckURL(u)
}

// CheckURL is Check for a URL that was parsed.
func (p Policy) CheckURL(u *url.URL) error {
	if p.Off {
		return ErrOff
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "" || u.User != nil {
		return ErrURL
	}
	ip, err := netip.ParseAddr(u.Hostname())
	literal := err == nil
	if u.Scheme == "http" && !p.Plain && u.Hostname() != "localhost" && !(literal && ip.Unmap().IsLoopback()) {
		return ErrPlain
	}
	if literal && !p.Allows(ip) {
		return ErrAddress
	}
	return nil
}

// checkDial looks at the address of a connection that is about to be made.
func (p Policy) checkDial(address string, plain bool) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !p.Allows(to.Addr()) {
		return ErrAddress
	}
	if plain && !p.Plain && !to.Addr().Unmap().IsLoopback() {
		return ErrPlain
	}
	return nil
}
