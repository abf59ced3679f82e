package auth

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestManyAtOnce: static tokens, remembered tokens, new ones and bad ones from
// many goroutines, while the keys change and at last the Authenticator closes;
// for the race detector.
func TestManyAtOnce(t *testing.T) {
	both := jwks(map[string]any{"one": &rsaKey().PublicKey, "two": &rsaOther().PublicKey})
	one := jwks(map[string]any{"one": &rsaKey().PublicKey})
	k := newKeyServer(t, one)
	i := remote(k.URL)
	i.Refresh, i.Again = time.Millisecond, time.Millisecond
	text, hash := NewToken()
	a := newAuth(t, Config{Tokens: []Token{{Name: "op", Hash: hash}}, Issuers: []Issuer{i}, MaxCache: 4})
	first, second := rs(t, rsaKey(), "one"), rs(t, rsaOther(), "two")
	if _, err := a.Authenticate(first); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 8 {
		fresh := rs(t, rsaKey(), "one")
		bad := rs(t, rsaKey(), fmt.Sprint("unknown", n))
		static := request(text)
		all.Go(func() {
			for round := range 50 {
				if _, err := a.Authenticate(static); err != nil {
					t.Error(err)
				}
				if _, err := a.Authenticate(first.Clone(t.Context())); err != nil {
					t.Error(err)
				}
				if _, err := a.Authenticate(fresh); err != nil {
					t.Error(err)
				}
				if _, err := a.Authenticate(bad); !errors.Is(err, ErrUnknownKey) {
					t.Error(err)
				}
				_, _ = a.Authenticate(second.Clone(t.Context()))
				if n == 0 {
					k.set(func() { k.text = [][]byte{one, both}[round%2] })
				}
			}
		})
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range k.asked { // keeps the server's channel from filling up
		}
	}()
	all.Wait()
	a.Close()
	a.Close()
	k.Close()
	close(k.asked)
	<-drained
}
