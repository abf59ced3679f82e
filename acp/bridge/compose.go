package bridge

import (
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// endResult is the result of a prompt that Belay answers (ACP-B22). word is what the
// agent has said instead, if anything.
func endResult(t *turn, word string) []byte {
	return fmt.Appendf(nil, `{"stopReason":"cancelled","_meta":%s}`, meta(t, word))
}

// meta says whose answer it is; the only place for who and why that the protocol has
// (A13).
func meta(t *turn, word string) []byte {
	dst := fmt.Appendf(nil, `{"belay":{"run":%s`, quote(t.run.ID().String()))
	if r := t.run.Receipt(); r != nil {
		verdict := r.Verdict
		if verdict == belay.Unreachable && t.stop != nil && t.stop.err == nil {
			verdict = belay.Signalled // which is on its way into the receipt
		}
		dst = fmt.Appendf(dst, `,"verdict":%s,"cause":%s`, quote(string(verdict)), quote(string(r.Cancellation.Cause)))
		if r.Cancellation.Reason != "" {
			dst = fmt.Appendf(dst, `,"reason":%s`, quote(r.Cancellation.Reason))
		}
	}
	if word != "" {
		dst = fmt.Appendf(dst, `,"agent":%s`, quote(word))
	}
	return append(dst, "}}"...)
}

// idleUpdate is the end of v2 work that Belay reports (ACP-B22).
func idleUpdate(dst []byte, t *turn) []byte {
	s := t.s
	dst = fmt.Appendf(dst, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%s,"update":{"sessionUpdate":"state_update","state":"idle","stopReason":"cancelled"`, quote(s.id))
	if s.work.list != nil {
		dst = append(append(dst, `,"background":`...), s.work.list...)
	}
	return fmt.Appendf(dst, `,"_meta":%s}}}`, meta(t, ""))
}

// notice tells the user something, where the editor can show it (ACP-B26): in v2
// always, in v1 if it has said so. It is no part of the conversation.
func (b *Bridge) notice(s *session, severity, title, description string) {
	if s.id == "" || b.reason != "" || b.version != acp.Version2 && !(b.version == acp.Version1 && b.notices) {
		return
	}
	_ = b.editor.say(func(dst []byte) []byte {
		dst = fmt.Appendf(dst, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%s,"update":{"sessionUpdate":"notice","severity":%s,"title":%s`, quote(s.id), quote(severity), quote(title))
		if description != "" {
			dst = fmt.Appendf(dst, `,"description":%s`, quote(description))
		}
		return append(dst, "}}}"...)
	})
}

// notifyStop tells the user who else has stopped his turn.
func (b *Bridge) notifyStop(t *turn) {
	st := t.stop
	if st.byEditor {
		return
	}
	c := st.cause
	title := "Belay stopped this turn (" + string(c.Cause) + ")"
	if c.By != "" {
		title = "Belay stopped this turn (" + string(c.Cause) + " by " + c.By + ")"
	}
	b.notice(t.s, "info", title, c.Reason)
}

// gone is the data of the error that requests get when there is nobody to answer them.
func gone(why Reason, run *belay.Run, how string) []byte {
	dst := fmt.Appendf(nil, `{"reason":%s`, quote(string(why)))
	if run != nil {
		dst = fmt.Appendf(dst, `,"run":%s`, quote(run.ID().String()))
	}
	if how != "" {
		dst = fmt.Appendf(dst, `,"exit":%s`, quote(how))
	}
	return append(dst, '}')
}
