package config

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// Server is the same for crypto/tls; nil if connections are not encrypted. TLS
// 1.2 is the oldest version. A client may show a certificate if there is a
// ClientCA, and one that it does not vouch for ends the connection; whether
// somebody without one is let in is the authentication's question.
//
// The certificate is read again when its files have changed, so that a renewed
// one is used without a restart; one that cannot be read leaves the last one in
// use.
func (t TLS) Server() (*tls.Config, error) {
	if !t.On() {
		return nil, nil //nolint:nilnil // nil is what "not encrypted" is for crypto/tls, too
	}
	p := &renewed{files: t}
	if _, err := p.certificate(nil); err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.certificate}
	if t.ClientCA != "" {
		pool, err := authorities(t.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("tls: client_ca: %w", err)
		}
		c.ClientCAs, c.ClientAuth = pool, tls.VerifyClientCertIfGiven
	}
	return c, nil
}

// renewed is a certificate with its key, as they lie in files.
type renewed struct {
	files TLS

	mu     sync.Mutex // guards the fields below
	looked time.Time
	stamp  [2]stamp
	have   *tls.Certificate
}

// stamp tells one version of a file from the next.
type stamp struct {
	size int64
	time time.Time
}

// lookEvery bounds how often the files are looked at, however many connect.
const lookEvery = time.Second

func (p *renewed) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.have != nil && now.Sub(p.looked) < lookEvery {
		return p.have, nil
	}
	p.looked = now
	stamps := [2]stamp{stampOf(p.files.Cert), stampOf(p.files.Key)}
	if p.have != nil && stamps == p.stamp {
		return p.have, nil
	}
	fresh, err := p.read()
	if err != nil && p.have == nil {
		return nil, err
	}
	if err == nil { // else: half of a renewal; the next look sees the rest
		p.have, p.stamp = fresh, stamps
	}
	return p.have, nil
}

func (p *renewed) read() (*tls.Certificate, error) {
	cert, err := readKey(p.files.Cert)
	if err != nil {
		return nil, err
	}
	key, err := readKey(p.files.Key)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(cert, key)
	return &c, err
}

func stampOf(name string) stamp {
	info, err := os.Stat(name)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime().Round(0)}
}
