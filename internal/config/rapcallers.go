package config

import (
	"time"

	"github.com/belayhq/belay/auth"
)

// RAPCallers are runtimes that sign their requests as AWS does. Such a key calls
// tools and does nothing else.
type RAPCallers struct {
	Region  string        `key:"region"`
	Service string        `key:"service" default:"lambda"`
	Skew    time.Duration `key:"skew" default:"5m" above:"0s"` // between the clocks of the two
	Keys    []RAPKey      `key:"keys"`
}

// RAPKey is one of their keys.
type RAPKey struct {
	Name         string `key:"name"` // the principal
	AccessKey    string `key:"access_key"`
	SecretKey    string `key:"secret_key" secret:"value"`
	SessionToken string `key:"session_token" secret:"value"` // of temporary credentials
}

// Bounds that package rap/sigv4 has, too.
const (
	minSigningSecret = 16
	maxSkew          = 15 * time.Minute
)

// rapCallers checks rap.sigv4.
func (d *decoder) rapCallers(c *RAPCallers, at spot) {
	switch {
	case c.Region == "":
		d.failf(at.atKey(), "sigv4 needs the region that runtimes sign for")
	case len(c.Keys) == 0:
		d.failf(at.atKey(), "sigv4 needs keys: nobody could sign")
	case c.Skew > maxSkew:
		d.failf(at.under("skew").shown(), "skew must be at most %v: so long is a recorded request worth something", maxSkew)
	}
	seen := map[string]bool{}
	for i := range c.Keys {
		k, item := &c.Keys[i], at.under("keys").item(i)
		name := auth.Config{Tokens: []auth.Token{{Name: k.Name, Hash: harmless}}}
		switch {
		case d.authFails(item.under("name").shown(), &name, item.value.tainted()):
		case k.AccessKey == "" || seen[k.AccessKey]:
			d.failf(item.atItem(), "each key needs an access_key of its own")
		case len(k.SecretKey) < minSigningSecret:
			d.failf(item.atItem(), "the secret_key of %s must have at least %d bytes", k.Name, minSigningSecret)
		}
		seen[k.AccessKey] = true
	}
}
