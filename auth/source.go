package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// errClosed is the cause that ends a read of keys.
var errClosed = errors.New("the authenticator was closed")

// keySet is what one read of an issuer's keys brought. It is never changed; a
// read that brings the same bytes keeps the same set, so that its address says
// whether anything has changed.
type keySet struct {
	sum  [sha256.Size]byte // of the document, which is public: == is fine
	keys []key
}

// find is the key for a token: by kid and algorithm. A token without kid fits
// only where there is no choice.
func (s *keySet) find(id string, named bool, alg string) (k key, found bool) {
	for _, have := range s.keys {
		if have.alg != alg || !have.only && named && have.id != id {
			continue
		}
		if found {
			return key{}, false // a choice; the issuer has to say which
		}
		k, found = have, true
	}
	return k, found
}

// source is where the keys of one issuer come from. There is at most one read
// at a time, whoever waits for it; between two lie Refresh (nothing unusual) or
// Again (an unknown key, a failure), so that tokens with made-up kids cannot
// make us hammer the issuer.
type source struct {
	name     string
	load     func(context.Context) ([]byte, error) // nil: the set is all there will ever be
	secrets  bool
	refresh  time.Duration
	again    time.Duration
	maxStale time.Duration
	timeout  time.Duration
	log      *slog.Logger

	ctx  context.Context // ends when the source is closed
	end  context.CancelCauseFunc
	busy sync.WaitGroup // reads

	mu     sync.Mutex // guards the fields below
	set    *keySet    // nil before the first good read
	good   time.Time  // the beginning of the last good read
	tried  time.Time  // the beginning of the last read
	failed error      // of the last read, nil after a good one
	read   *reading   // nil while there is none
	closed bool
}

// reading is one read of the keys.
type reading struct{ done chan struct{} }

// newSource reads keys that are at hand at once, so that mistakes are seen at
// the start.
func newSource(i *Issuer, cfg *Config) (*source, error) {
	s := &source{
		name: i.Name, refresh: i.Refresh, again: i.Again, maxStale: i.MaxStale, timeout: i.Timeout, log: cfg.Log,
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	c := client(cfg.Transport)
	switch {
	case len(i.Secret) > 0:
		secret := append([]byte(nil), i.Secret...)
		s.set = &keySet{keys: []key{{only: true, alg: algHS256, public: secret}}}
	case len(i.PEM) > 0:
		k, err := pemKey(i.PEM)
		if err != nil {
			return nil, err
		}
		s.set = &keySet{keys: []key{k}}
	case i.KeyFile != "":
		s.secrets = true
		s.load = func(context.Context) ([]byte, error) { return readFile(i.KeyFile) }
		s.perform(s.ctx)
		if s.failed != nil {
			return nil, fmt.Errorf("%w: key file: %w", ErrConfig, s.failed)
		}
	case i.KeyURL != "":
		s.load = func(ctx context.Context) ([]byte, error) { return get(ctx, c, i.KeyURL) }
	default:
		s.load = func(ctx context.Context) ([]byte, error) {
			// Asked again each time: issuers move.
			address, err := discover(ctx, c, i.Issuer)
			if err != nil {
				return nil, err
			}
			return get(ctx, c, address)
		}
	}
	return s, nil
}

// close ends a read under way and waits for it.
func (s *source) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	s.busy.Wait()
}

// current is the set that may be used now; nil when there is none, or the last
// good read is too long ago. It never blocks. When the set is due it starts a
// read, whose result the next caller sees.
func (s *source) current(now time.Time) *keySet {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.load == nil {
		return s.set
	}
	if s.set != nil && now.Sub(s.good) >= s.refresh {
		s.startLocked(now)
	}
	if now.Sub(s.good) > s.maxStale {
		return nil
	}
	return s.set
}

// find is the key for a token, with the set that it is in. It waits for a read
// only if without it the answer would be no.
func (s *source) find(ctx context.Context, id string, named bool, alg string) (key, *keySet, error) {
	now := time.Now()
	set := s.current(now)
	if set != nil {
		if k, ok := set.find(id, named, alg); ok {
			return k, set, nil
		}
	}
	if s.load == nil {
		return key{}, nil, ErrUnknownKey
	}
	s.mu.Lock()
	read := s.startLocked(now)
	s.mu.Unlock()
	if read != nil {
		select {
		case <-read.done:
		case <-ctx.Done():
			return key{}, nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
	// Also without a read to wait for: one may have ended since the first look.
	if set = s.current(time.Now()); set == nil {
		return key{}, nil, s.unavailable()
	}
	if k, ok := set.find(id, named, alg); ok {
		return k, set, nil
	}
	return key{}, nil, ErrUnknownKey
}

func (s *source) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, s.failed)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
}

// startLocked starts a read, or returns the one under way; nil when it is too
// early for another one.
func (s *source) startLocked(now time.Time) *reading {
	switch {
	case s.read != nil:
		return s.read
	case s.closed, !s.tried.IsZero() && now.Sub(s.tried) < s.again:
		return nil
	}
	r := &reading{done: make(chan struct{})}
	s.read, s.tried = r, now
	s.busy.Go(func() {
		// Not the request's context: others wait for the same keys.
		ctx, end := context.WithTimeoutCause(s.ctx, s.timeout, fmt.Errorf("no keys within %v", s.timeout))
		defer end()
		s.perform(ctx)
		s.mu.Lock()
		s.read = nil
		s.mu.Unlock()
		close(r.done)
	})
	return r
}

// perform reads once and keeps what came. What fails leaves the set as it is.
func (s *source) perform(ctx context.Context) {
	begun := time.Now()
	text, err := s.load(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var set *keySet
	if err == nil {
		set = &keySet{sum: sha256.Sum256(text)}
		set.keys, err = parseJWKS(text, s.secrets)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.failed = begun, err
	if err != nil {
		if !s.closed {
			s.log.Warn("keys of an issuer cannot be read", "issuer", s.name, "error", err)
		}
		return
	}
	s.good = begun
	if s.set == nil || s.set.sum != set.sum {
		s.set = set
	}
}
