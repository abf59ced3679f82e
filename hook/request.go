package hook

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// bodyLimit bounds the reading of a response's body, which is for logs only.
const bodyLimit = 250 * time.Millisecond

// request sends the action's request and returns the status and the beginning
// of the body. Each has a connection of its own, so that nothing is left open.
func (h *HTTP) request(ctx context.Context, s Step, v values) (status int, body string, err error) {
	target, err := h.target(v)
	if err != nil {
		return 0, "", err
	}
	content, err := h.body(v)
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, h.method(s), target, strings.NewReader(content))
	if err != nil {
		return 0, "", err
	}
	if kind := h.bodyType(); kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	for _, header := range h.Header {
		text, err := headerValue(header.Value, v)
		if err != nil {
			return 0, "", err
		}
		r.Header.Set(header.Name, text)
	}
	client := http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, DialContext: h.dialer(),
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, "", err
	}
	// The status is the answer; a body that breaks off or never ends is not waited for.
	late := time.AfterFunc(bodyLimit, func() { _ = resp.Body.Close() })
	defer resp.Body.Close()
	defer late.Stop()
	kept, _ := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	return resp.StatusCode, strings.TrimSpace(clean(strings.ToValidUTF8(string(kept), "?"))), nil
}

// dialer connects to the unix socket, if there is one; nil means the usual way.
func (h *HTTP) dialer() func(context.Context, string, string) (net.Conn, error) {
	if h.Socket == "" {
		return nil
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", h.Socket)
	}
}
