package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

// RAP is what all servers and callers of the Reactive Agent Protocol have in
// common.
type RAP struct {
	// Callback is the URL at which tool servers reach this Belay, without a path:
	// "https://belay.example". Empty: the address that is listened on.
	Callback string `key:"callback_url"`
	// Subscriptions is where live subscriptions outlive a restart; empty:
	// rap-subscriptions.json beside the ledger.
	Subscriptions string `key:"subscriptions" path:"file"`
	// Addresses says where Belay posts what another program has named the address of:
	// the callbacks of runtimes, and endpoints of tool servers elsewhere. "auto" is
	// never what Load returns; see [Leases].
	Addresses string `key:"addresses" default:"auto" enum:"auto,public,local,private,off"`

	// Offer says whether servers are offered to runtimes, at /rap/NAME.
	Offer bool `key:"offer" default:"true"`
	// BaseURL is the URL at which runtimes reach this Belay, without a path. Empty: as
	// the Host of their requests says.
	BaseURL string      `key:"base_url"`
	SigV4   *RAPCallers `key:"sigv4"` // runtimes that sign; nil: none
}

// RAPServer is a tool server of that protocol, in place of a command and a URL of
// MCP.
type RAPServer struct {
	URL     string            `key:"url" secret:"value"`     // the base URL
	Command commandLine       `key:"command" secret:"value"` // of one that Belay starts; it says its port on the first line
	Args    []string          `key:"args" secret:"value"`
	Env     map[string]string `key:"env" secret:"value"`
	Dir     string            `key:"cwd"` // absolute; empty: Belay's own

	Headers map[string]string `key:"headers" secret:"value"`
	Bearer  string            `key:"bearer" secret:"value"`
	MTLS    *MTLS             `key:"mtls"`
	SigV4   *SigV4            `key:"sigv4"`

	ConfirmAfter Option[time.Duration] `key:"confirm_after" default:"10s" above:"0s"`
	CallTimeout  Option[time.Duration] `key:"call_timeout" default:"0s" min:"0s"` // 0: none
	KillServer   bool                  `key:"kill_server" default:"false"`
}

// MTLS is a client certificate, and who vouches for the server.
type MTLS struct {
	Cert string `key:"cert" path:"file"` // PEM
	Key  string `key:"key" path:"file"`  // PEM
	CA   string `key:"ca" path:"file"`   // PEM; empty: the system's
}

// Client is the same for crypto/tls. The files were readable when the
// configuration was loaded.
func (m *MTLS) Client() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.Cert != "" {
		p := &renewed{files: TLS{Cert: m.Cert, Key: m.Key}}
		if _, err := p.certificate(nil); err != nil {
			return nil, fmt.Errorf("mtls: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.certificate(nil) }
	}
	if m.CA != "" {
		pool, err := authorities(m.CA)
		if err != nil {
			return nil, fmt.Errorf("mtls: ca: %w", err)
		}
		c.RootCAs = pool
	}
	return c, nil
}

// SigV4 signs requests as AWS does.
type SigV4 struct {
	AccessKey    string `key:"access_key" secret:"value"`
	SecretKey    string `key:"secret_key" secret:"value"`
	SessionToken string `key:"session_token" secret:"value"`
	Region       string `key:"region"`
	Service      string `key:"service" default:"lambda"`
}

// rapServer checks what the keys of a RAP server must have in common.
func (d *decoder) rapServer(s *Server, at spot) {
	r, n := s.RAP, at.value
	r.Command = append(r.Command, r.Args...)
	r.Args = nil
	if n.kind != kindMap {
		d.failf(at.atKey(), "server %q: rap says neither url nor command", s.Name)
		return
	}
	switch command, address := n.get("command"), n.get("url"); {
	case command != nil && address != nil:
		d.failf(at.atKey(), "rap of server %q has both command and url: it is reached by one of them", s.Name)
	case command == nil && address == nil:
		d.failf(at.atKey(), "rap of server %q says neither url nor command", s.Name)
	case command != nil && (len(r.Command) == 0 || r.Command[0] == ""):
		d.failf(at.atKey(), "the rap command of server %q is empty", s.Name)
	case address != nil:
		if bad := badBase(r.URL); bad != "" {
			d.failf(at.atKey(), "the rap url of server %q %s", s.Name, bad)
		}
		for _, key := range []string{"args", "env", "cwd", "kill_server"} {
			if n.get(key) != nil {
				d.failf(at.under(key).atKey(), "%s is for servers that are started by a command, and %q is not", key, s.Name)
			}
		}
	}
	ways := 0
	for _, has := range []bool{r.Bearer != "", r.SigV4 != nil} {
		if has {
			ways++
		}
	}
	if ways > 1 {
		d.failf(at.atKey(), "rap of server %q has both bearer and sigv4, which are one header", s.Name)
	}
	if g := r.SigV4; g != nil && (g.AccessKey == "" || g.SecretKey == "" || g.Region == "") {
		d.failf(at.under("sigv4").atKey(), "sigv4 needs access_key, secret_key and region")
	}
	if m := r.MTLS; m != nil {
		d.rapTLS(m, at.under("mtls"))
	}
	r.Dir = d.vars.folder(r.Dir, d.dir)
}

func (d *decoder) rapTLS(m *MTLS, at spot) {
	if (m.Cert == "") != (m.Key == "") {
		d.failf(at.atKey(), "mtls needs both cert and key, or only ca")
		return
	}
	if _, err := m.Client(); err != nil {
		d.failf(at.atKey(), "mtls: %s", strings.ReplaceAll(nameless(innermost(err)).Error(), "tls: ", ""))
	}
}

// innermost is the innermost reason of an error, which names no file.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// badBase says what is wrong with the base URL of a tool server, without showing
// it.
func badBase(text string) string {
	if bad := badURL(text); bad != "" {
		return bad
	}
	if strings.ContainsAny(text, "?@") {
		return "has a query or a user name in it; use headers"
	}
	return ""
}
