package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/egress"
)

// Hooks says where webhooks may go. A webhook makes this process send a request
// to an address that somebody else chose, so the zero value allows no more than
// https to public addresses, and either scheme to the machine itself. Addresses
// are checked when the connection is made, after names were resolved. Link-local
// and other addresses where clouds keep credentials are never allowed. Whoever names a
// webhook holds the permission runs.register.
type Hooks struct {
	Private    bool // also private addresses: of the company's network
	Plain      bool // also http to other machines
	NoLoopback bool // not to this machine: for servers that strangers may register at
	Off        bool // nowhere: a registration that names one is refused
}

// Bounds of webhooks.
const (
	maxURL        = 2048
	hookTime      = 5 * time.Second // for one answer
	hookBody      = 64 << 10        // of the answer; it is not looked at
	hooksAtOnce   = 512
	hooksAtOnceOf = 32 // of one owner: dead webhooks of one delay no other's
)

// What a receipt says of a webhook that did not take an order. Nothing of the
// answer is in it, nor the address that a name had: a receipt must not tell its
// reader about networks that only this process sees.
var (
	errHookAddress = errors.New("its address is not one that webhooks may go to")
	errHookTime    = errors.New("it did not answer in time")
	errHookReach   = errors.New("it could not be reached")
	errHookBusy    = errors.New("too many orders were being sent")
)

// check looks at a webhook's text; the address behind a name is looked at later.
func (h Hooks) check(text string) error {
	bad := func(why string) error { return fmt.Errorf("%w: webhook: %s", belay.ErrBadRequest, why) }
	if h.Off {
		return bad("this server posts to none; hear of orders by the event stream or by heartbeats")
	}
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return bad("it is longer than 2048 bytes")
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return bad("it is no absolute URL")
	case u.User != nil:
		return bad("it holds a user name, which would be kept and shown; use a path that nobody guesses")
	case u.Fragment != "":
		return bad("it has a fragment, which is never sent")
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("its scheme is neither https nor http")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	literal := err == nil
	if u.Scheme == "http" && !h.Plain && u.Hostname() != "localhost" && !(literal && ip.Unmap().IsLoopback()) {
		return bad("http goes to this machine only; use https")
	}
	if literal && !h.allows(ip) {
		return bad(errHookAddress.Error())
	}
	return nil
}

// allows reports whether orders may be sent to the address.
func (h Hooks) allows(ip netip.Addr) bool { return h.policy().Allows(ip) }

// policy is where orders may go, in the words of the table of addresses. Off is
// about registering: orders of runs that were registered before are sent.
func (h Hooks) policy() egress.Policy {
	return egress.Policy{Private: h.Private, Plain: h.Plain, NoLoopback: h.NoLoopback}
}

// poster sends orders. Its requests share nothing with any other's: no proxy, no
// cookies, no connection that is kept.
type poster struct {
	hooks Hooks
	http  *http.Client
	slots chan struct{}

	mu sync.Mutex
	of map[string]int // requests under way, by owner
}

func newPoster(h Hooks) *poster {
	p := &poster{hooks: h, slots: make(chan struct{}, hooksAtOnce), of: make(map[string]int)}
	// Each order has a connection of its own; see package egress for what is looked at.
	p.http = h.policy().Client(egress.ClientOptions{Timeout: hookTime})
	return p
}

// send posts an order once. An error is one that a receipt may show.
func (p *poster) send(ctx context.Context, owner, hook string, o *Order) error {
	if !p.enter(ctx, owner) {
		return errHookBusy
	}
	defer p.leave(owner)
	body, err := json.Marshal(o)
	if err != nil {
		return err // an order always has a form
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook, bytes.NewReader(body))
	if err != nil {
		return errHookReach
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "belay")
	resp, err := p.http.Do(req)
	if err != nil {
		return plainly(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, hookBody))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("it answered %d", resp.StatusCode)
	}
	return nil
}

// plainly says what went wrong without the address, which the errors of package
// net/http quote.
func plainly(err error) error {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, egress.ErrAddress), errors.Is(err, egress.ErrPlain):
		return errHookAddress
	case ok && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return errHookTime
	}
	return errHookReach
}

// enter takes a place, and waits for one as long as ctx lasts.
func (p *poster) enter(ctx context.Context, owner string) bool {
	p.mu.Lock()
	full := p.of[owner] >= hooksAtOnceOf
	if !full {
		p.of[owner]++
	}
	p.mu.Unlock()
	if full {
		return false // the caller tries again
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		p.forget(owner)
		return false
	}
}

func (p *poster) leave(owner string) {
	<-p.slots
	p.forget(owner)
}

func (p *poster) forget(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[owner]--; p.of[owner] == 0 {
		delete(p.of, owner)
	}
}

// host is the part of a webhook that may be shown: its path may hold a secret.
func host(hook string) string {
	u, err := url.Parse(hook)
	if err != nil {
		return "an unknown host"
	}
	return belay.CleanReason(u.Host)
}
