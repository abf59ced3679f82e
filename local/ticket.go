package local

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/belayhq/belay"
)

// A ticket is one string without blanks at its ends,
//
//	belay1:<run id>:<secret>:<path of the socket>
//
// The secret is a keyed hash of the run id with a key that never leaves the
// server's memory: the server need not remember the tickets it gave out, and a
// ticket for one run says nothing about another.
const ticketPrefix = "belay1"

// maxTicket bounds what is read from the environment.
const maxTicket = 8 << 10

type ticketKey [32]byte

func newTicketKey() (k ticketKey) {
	rand.Read(k[:]) // never fails
	return k
}

func (k *ticketKey) secret(run belay.RunID) string {
	mac := hmac.New(sha256.New, k[:])
	mac.Write(run[:])
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func (k *ticketKey) mint(run belay.RunID, socket string) string {
	return strings.Join([]string{ticketPrefix, run.String(), k.secret(run), socket}, ":")
}

// admit checks a ticket that a peer showed and says which run it is for.
func (k *ticketKey) admit(text string) (belay.RunID, error) {
	t, err := parseTicket(text)
	if err != nil {
		return belay.RunID{}, err
	}
	if !hmac.Equal([]byte(t.secret), []byte(k.secret(t.run))) {
		return belay.RunID{}, fmt.Errorf("%w: the ticket was not issued by this process", belay.ErrForbidden)
	}
	return t.run, nil
}

type ticket struct {
	run    belay.RunID
	secret string
	socket string
}

// parseTicket reads a ticket. Errors do not repeat it: it holds a secret.
func parseTicket(text string) (ticket, error) {
	bad := func(what string) (ticket, error) {
		return ticket{}, fmt.Errorf("%w: not a ticket: %s", belay.ErrBadRequest, what)
	}
	if len(text) > maxTicket {
		return bad("it is too long")
	}
	part := strings.SplitN(text, ":", 4)
	if len(part) != 4 || part[0] != ticketPrefix {
		return bad("want " + ticketPrefix + ":RUN:SECRET:SOCKET")
	}
	run, err := belay.ParseRunID(part[1])
	if err != nil || run.IsZero() {
		return bad("its run id is malformed")
	}
	if !filepath.IsAbs(part[3]) || socketPid(part[3]) == 0 {
		return bad("its socket is not the path of a Belay socket")
	}
	return ticket{run: run, secret: part[2], socket: filepath.Clean(part[3])}, nil
}
