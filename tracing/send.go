package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// maxAnswer bounds what is read of a receiver's answer.
const maxAnswer = 64 << 10

func newSender(o *Options) (sender, error) {
	if o.Config.Exporter == ExportConsole {
		return &console{o.Console}, nil
	}
	return newPoster(&o.Config)
}

// console writes each batch as a line of OTLP JSON.
type console struct{ to io.Writer }

func (c *console) send(_ context.Context, o *origin, spans []*span) (int, error) {
	_, err := c.to.Write(append(o.json(spans), '\n'))
	return 0, err
}

func (*console) close() {}

// poster posts batches to an OTLP receiver.
type poster struct {
	c      *Config
	client *http.Client
}

func newPoster(c *Config) (*poster, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
	}
	if c.Certificate != "" {
		pem, err := os.ReadFile(c.Certificate)
		if err != nil {
			return nil, fmt.Errorf("%w: the certificates of the receiver: %w", ErrConfig, err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no certificate in PEM", ErrConfig, c.Certificate)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	return &poster{c: c, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // headers may be secrets
	}}, nil
}

func (p *poster) close() { p.client.CloseIdleConnections() }

func (p *poster) send(ctx context.Context, o *origin, spans []*span) (rejected int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.c.Timeout, fmt.Errorf("the receiver did not answer within %s", p.c.Timeout))
	defer cancel()
	req, err := p.request(ctx, o, spans)
	if err != nil {
		return 0, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL, which may hold a token
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return 0, &temporary{error: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case res.StatusCode/100 == 2 && p.c.Protocol == ProtocolJSON:
		return int(rejectedJSON(body)), nil
	case res.StatusCode/100 == 2:
		return int(rejectedProtobuf(body)), nil // one that cannot be read was taken all the same
	}
	refused := fmt.Errorf("the receiver answered %d", res.StatusCode)
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return 0, &temporary{refused, time.Duration(max(min(seconds, 3600), 0)) * time.Second}
	}
	return 0, errors.Join(refused, err)
}

func (p *poster) request(ctx context.Context, o *origin, spans []*span) (*http.Request, error) {
	body, kind := o.protobuf, "application/x-protobuf"
	if p.c.Protocol == ProtocolJSON {
		body, kind = o.json, "application/json"
	}
	data := body(spans)
	if p.c.Gzip {
		data = squeeze(data)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.c.Endpoint, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for name, value := range p.c.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("User-Agent", "belay/"+o.version)
	if p.c.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	return req, nil
}

func squeeze(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data) // a Buffer takes everything
	_ = w.Close()
	return b.Bytes()
}
