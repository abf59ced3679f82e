package acp

import (
	"errors"
	"fmt"
	"sync"
)

// Form is one of the ways of cancelling a single request.
type Form uint8

// The forms. The zero value means that nothing is known or nothing was set.
const (
	FormUnknown Form = iota
	FormNone         // nothing is sent: the peer does not want it
	FormStable       // $/cancel_request {requestId}, of 2026-06-29
	FormSeed         // $/cancelRequest {id}, of 2025-11-13
)

// String is the word that the setting acp.dialect has for the form.
func (f Form) String() string {
	switch f {
	case FormUnknown:
		return "auto"
	case FormNone:
		return "none"
	case FormStable:
		return "stable"
	case FormSeed:
		return "seed"
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

// ErrForm reports a word that is no form.
var ErrForm = errors.New("unknown form of cancel")

// ParseForm reads a value of the setting acp.dialect: stable, seed or none; auto
// and nothing at all leave it to the rules. The error matches [ErrForm].
func ParseForm(word string) (Form, error) {
	for f := FormUnknown; f <= FormSeed; f++ {
		if word == f.String() {
			return f, nil
		}
	}
	if word == "" {
		return FormUnknown, nil
	}
	return FormUnknown, fmt.Errorf("%w: %.32q (want stable, seed, none or auto)", ErrForm, word)
}

// Forms knows in which form one peer is to be told, on one connection (ACP-47).
// The zero value is a peer that has not said anything yet, and to which no cancel
// may be sent (ACP-9). Safe for concurrent use.
type Forms struct {
	mu      sync.Mutex
	setting Form
	heard   Form
	greeted bool
	version int
	flag    Flag
}

// Use sets what the user wants for this peer, which comes before all that the
// peer says. [FormUnknown] takes it back.
func (f *Forms) Use(setting Form) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setting = setting
}

// Greet notes what the peer has said of itself in initialize, and the version that
// holds on the connection. It is called when the answer to initialize passes: from
// then on requests can be cancelled.
func (f *Forms) Greet(version int, flag Flag) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.greeted, f.version, f.flag = true, version, flag
}

// Heard notes the form in which the peer itself has cancelled something.
func (f *Forms) Heard(form Form) {
	if form != FormStable && form != FormSeed {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = form
}

// Greeted reports whether [Forms.Greet] was called.
func (f *Forms) Greeted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.greeted
}

// Send is the form in which the peer is to be told now: [FormStable], [FormSeed],
// or [FormNone] if nothing may be sent to it.
//
// The rules are those of ACP-47 with one change. There a peer's own cancels (2) and
// version 2 (3) come before the flag; but a peer may cancel, and ask not to be
// cancelled (ACP-7, ACP-27), and must then never be sent one (ACP-8, A1). So a
// declared false is overruled by the user's setting alone.
func (f *Forms) Send() Form {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.greeted:
		return FormNone
	case f.setting != FormUnknown:
		return f.setting
	case f.flag == FlagFalse:
		return FormNone
	case f.heard != FormUnknown:
		return f.heard
	case f.version >= Version2:
		return FormStable
	case f.flag == FlagTrue:
		return FormSeed
	}
	return FormStable // a missing flag means nothing, and who does not know a $/ method ignores it
}
