package httpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// lingerWait is how long a stream that has had its response may take to end by
// itself, which leaves its connection usable for others (MCP-74). Some servers
// never end it.
const lingerWait = 2 * time.Second

// textWait is how long the text of an error is waited for.
const textWait = time.Second

// answer reads the HTTP answer to a request.
func (k *call) answer(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	if k.method == mcp.MethodInitialize {
		k.c.mu.Lock()
		k.session = resp.Header.Get(headerSession)
		k.c.mu.Unlock()
	}
	switch kind := mediaType(resp); {
	case resp.StatusCode/100 != 2:
		return k.refused(resp, kind)
	case kind == typeEvents:
		return k.stream(resp)
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		return fmt.Errorf("%w: the server accepted the request (%d) without an answer", ErrClosedEarly, resp.StatusCode)
	default:
		return k.message(resp, kind)
	}
}

func mediaType(resp *http.Response) string {
	value := resp.Header.Get("Content-Type")
	switch value {
	case typeJSON, typeEvents:
		return value
	}
	kind, _, err := mime.ParseMediaType(value)
	if err != nil {
		return ""
	}
	return kind
}

// message reads an answer that is one message, or a batch (MCP-40).
func (k *call) message(resp *http.Response, kind string) error {
	if kind != typeJSON && kind != "" && kind != "text/plain" { // the latter two may be carelessness
		return fmt.Errorf("%w: %s %s", ErrNotMCP, quote([]byte(resp.Header.Get("Content-Type"))), beginning(resp))
	}
	frame, err := k.read(resp)
	defer putFrame(frame)
	if err != nil {
		return err
	}
	k.c.deliver(*frame, k, resp.StatusCode)
	if k.waits() {
		return fmt.Errorf("%w: %s", ErrNotMCP, quote(*frame))
	}
	return nil
}

// waits reports whether the call has had no answer yet.
func (k *call) waits() bool {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.c.calls[k.key] == k
}

// read reads a body of bounded length. The frame must be given back.
func (k *call) read(resp *http.Response) (*[]byte, error) {
	frame := getFrame()
	limit := k.c.cfg.MaxMessage
	if resp.ContentLength > int64(limit) {
		return frame, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLong, resp.ContentLength, limit)
	}
	var err error
	*frame, err = appendAll(*frame, resp.Body, resp.ContentLength, limit)
	switch {
	case err == nil || k.ctx.Err() == nil && errors.Is(err, ErrTooLong):
		return frame, err
	case k.ctx.Err() != nil:
		return frame, context.Cause(k.ctx)
	}
	return frame, fmt.Errorf("%w: %w", ErrClosedEarly, err)
}

// appendAll reads src to its end, of which size is known or -1.
func appendAll(dst []byte, src io.Reader, size int64, limit int) ([]byte, error) {
	if size > int64(cap(dst)-1) {
		dst = make([]byte, 0, size+1) // one more to see the end
	}
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := src.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > limit:
			return dst, fmt.Errorf("%w: at most %d bytes are allowed", ErrTooLong, limit)
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// refused reads an answer with a status that is no success. A JSON-RPC message
// in it is the response, passed on with its status.
func (k *call) refused(resp *http.Response, kind string) error {
	switch {
	case resp.StatusCode/100 == 3:
		return redirectError(resp)
	case kind == typeEvents && resp.StatusCode/100 != 2:
		return statusError(resp)
	}
	if kind == typeJSON {
		frame, err := k.read(resp)
		defer putFrame(frame)
		if err == nil {
			resp.Body = io.NopCloser(bytes.NewReader(*frame))
		}
		if err == nil && !k.sessionGone(resp, *frame) && isResponse(*frame) {
			k.c.deliver(*frame, k, resp.StatusCode)
			if !k.waits() {
				return nil
			}
		}
	}
	err := statusError(resp)
	if k.sessionGone(resp, nil) {
		err = fmt.Errorf("%w: %w", ErrSessionOver, err)
		k.c.finish(err)
	}
	return err
}

// sessionGone reports whether a status means that the session is over. A server
// that knows the session but not the method says so in its message.
func (k *call) sessionGone(resp *http.Response, frame []byte) bool {
	if !k.c.expired(k.sent, resp.StatusCode) {
		return false
	}
	var e jsonrpc.Envelope
	return jsonrpc.Parse(frame, &e) != nil || !e.ID.Same(k.id)
}

func isResponse(frame []byte) bool {
	var e jsonrpc.Envelope
	return jsonrpc.Parse(frame, &e) == nil && e.Kind == jsonrpc.Response
}

// redirectError names where the server points to. Redirects repeat what stands
// in the query of the operator's URL, which is nothing for callers.
func redirectError(resp *http.Response) error {
	to := withoutSecrets(resp.Header.Get("Location"))
	return fmt.Errorf("%w: %d to %s; put that URL into the configuration if it is right", ErrRedirect, resp.StatusCode, quote([]byte(to)))
}

// statusError reads the beginning of a body for an error. It ends the answer.
func statusError(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 == 3 {
		return redirectError(resp)
	}
	auth := resp.Header.Get("WWW-Authenticate")
	return &StatusError{Status: resp.StatusCode, Text: beginning(resp), Authenticate: auth[:min(len(auth), 2<<10)]}
}

// beginning quotes what a body begins with. It does not wait for a server that
// stops in the middle of an error.
func beginning(resp *http.Response) string {
	defer time.AfterFunc(textWait, func() { _ = resp.Body.Close() }).Stop()
	text := make([]byte, quoteLen+1)
	n, _ := io.ReadFull(resp.Body, text)
	return quote(text[:n])
}

// drop ends an answer whose body does not matter. A short one is read, so that
// the connection can be used again.
func drop(resp *http.Response) {
	if resp.ContentLength >= 0 && resp.ContentLength <= 4<<10 {
		_, _ = io.CopyN(io.Discard, resp.Body, resp.ContentLength+1)
	}
	_ = resp.Body.Close()
}
