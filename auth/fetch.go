package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
)

// checkURL refuses an address from which keys cannot be trusted: everybody on
// the way could put in their own.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return fmt.Errorf("%.200q is not an address", text)
	case u.User != nil:
		return fmt.Errorf("an address with a password in it")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	default:
		return fmt.Errorf("%.200q: keys are fetched over https only", text)
	}
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// client fetches keys. It follows no redirects: the address was configured, and
// where it leads next was not.
func client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DisableKeepAlives:      true, // minutes lie between two reads
			MaxResponseHeaderBytes: 64 << 10,
			TLSHandshakeTimeout:    10 * time.Second, // the context ends it sooner
			ForceAttemptHTTP2:      true,
		}
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get reads a document, at most maxKeyBody long.
func get(ctx context.Context, c *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with status %d", address, resp.StatusCode)
	}
	return readAll(resp.Body, address)
}

func readAll(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxKeyBody+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxKeyBody:
		return nil, fmt.Errorf("%s is longer than %d bytes", name, maxKeyBody)
	default:
		return b, nil
	}
}

// discover asks an issuer where its keys are (OpenID Connect Discovery 1.0,
// section 4). The document has to be the issuer's own, and an issuer on the
// network cannot point at this machine's loopback.
func discover(ctx context.Context, c *http.Client, iss string) (string, error) {
	text, err := get(ctx, c, strings.TrimSuffix(iss, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("the discovery document is not JSON: %w", err)
	}
	if document.Issuer != iss {
		return "", fmt.Errorf("the discovery document is of issuer %.200q, not %q", document.Issuer, iss)
	}
	if err := checkURL(document.Keys); err != nil {
		return "", fmt.Errorf("jwks_uri: %w", err)
	}
	if strings.HasPrefix(iss, "https:") && !strings.HasPrefix(document.Keys, "https:") {
		return "", fmt.Errorf("jwks_uri %.200q is not https, its issuer is", document.Keys)
	}
	return document.Keys, nil
}

// readFile reads a file of keys: a plain file, so that opening it cannot hang.
func readFile(name string) ([]byte, error) {
	if info, err := os.Stat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, name)
}
