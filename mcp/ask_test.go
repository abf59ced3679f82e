package mcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// TestAT38_TheTextIsAnItemOfItsOwn, unchanged, whoever stopped the call.
func TestAT38_TheTextIsAnItemOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		cause  belay.Cause
		reason string
		want   string
	}{
		{belay.CauseOperator, "", "Cancelled by operator."},
		{belay.CauseUser, "", "Cancelled by user."},
		{belay.CauseDeadline, "", "Cancelled after its deadline."},
		{belay.CauseParent, "enough.", "Cancelled by parent: enough."},
	} {
		text := "Partial results:\n  1\n\n"
		frame := AppendPartial(nil, jsonrpc.StringID("x"), &belay.Cancellation{Cause: c.cause, Reason: c.reason}, text, Legacy)
		want := fmt.Sprintf(`{"content":[{"type":"text","text":%q},{"type":"text","text":%q}],"isError":true}`, c.want, text)
		if !strings.HasSuffix(string(frame), `"result":`+want+"}") {
			t.Errorf("%s, want %s", frame, want)
		}
		if _, ok := PartialText(read(t, string(frame))); ok {
			t.Error("a stopped call's answer is taken for a partial result") // a Belay behind a Belay
		}
	}
}

// TestReadQuestion reads what a worker asks, and refuses what is no question.
func TestReadQuestion(t *testing.T) {
	ask := func(params string) (Question, error) {
		return ReadQuestion(read(t, `{"jsonrpc":"2.0","id":1,"method":"`+MethodAsk+`","params":`+params+`}`))
	}
	q, err := ask(`{"call":"b-1","title":"T","message":"M\n","primary":"P","secondary":"S","preview":"V","timeoutMs":1500}`)
	if want := (Question{"b-1", "T", "M\n", "P", "S", "V", 1500 * time.Millisecond}); err != nil || q != want {
		t.Errorf("%+v, %v", q, err)
	}
	if q, err := ask(`{"call":"b-1","message":"M","timeoutMs":9223372036854775807}`); err != nil || q.Timeout != maxQuestionWait {
		t.Errorf("%+v, %v", q, err)
	}
	for _, bad := range []string{
		`[]`, `{}`, `{"call":"b-1"}`, `{"message":"M"}`, `{"call":"b-1","message":""}`, `{"call":7,"message":"M"}`, `{"call":"b-1","message":["M"]}`,
		`{"call":"b-1","message":"M","primary":true}`, `{"call":"b-1","message":"M","timeoutMs":-1}`, `{"call":"b-1","message":"M","timeoutMs":1.5}`,
		`{"call":"b-1","message":"M","timeoutMs":"1"}`, `{"call":"` + strings.Repeat("x", 300) + `","message":"M"}`,
		`{"call":"b-1","message":"` + strings.Repeat("x", maxQuestionLine+1) + `"}`, `{"call":"b-1","call":"b-2","message":"M"}`,
	} {
		if q, err := ask(bad); err == nil {
			t.Errorf("%.60s is the question %.60v", bad, q)
		}
	}
}

// TestResultOutcome finds the word and cuts it out wherever it stands: what is left
// is a message.
func TestResultOutcome(t *testing.T) {
	const word = `"io.github.belayhq/outcome"`
	for meta, want := range map[string]string{
		`{ ` + word + ` : "declined" , "a":1}`:            `{ "a":1}`,
		`{"a":1, ` + word + `:"declined"}`:                `{"a":1}`,
		`{"a":1,` + word + `:"declined","b":2}`:           `{"a":1,"b":2}`,
		`{"io.github.belayhq\/outcome":"declined","b":2}`: `{"b":2}`,
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":`+meta+`}}`)
		outcome, at := ResultOutcome(m)
		if outcome != belay.Declined || !at.Ok() {
			t.Errorf("%s: %q", meta, outcome)
			continue
		}
		bare := string(jsonrpc.AppendSplice(nil, m.Frame, jsonrpc.Edit{At: at}))
		read(t, bare)
		if !strings.Contains(bare, `"_meta":`+want) {
			t.Errorf("%s became %s, want %s", meta, bare, want)
		}
	}
	for result, want := range map[string]string{ // nothing else is in it
		`{"content":[],"_meta":{` + word + `:"declined"}}`:          `{"content":[]}`,
		`{ "_meta" : { ` + word + ` : "declined" } , "content":[]}`: `{ "content":[]}`,
		`{"_meta":{` + word + `:"declined"}}`:                       `{}`,
	} {
		m := read(t, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
		outcome, at := ResultOutcome(m)
		if bare := string(jsonrpc.AppendSplice(nil, m.Frame, jsonrpc.Edit{At: at})); outcome != belay.Declined || !strings.HasSuffix(bare, `"result":`+want+`}`) {
			t.Errorf("%s became %s (%q)", result, bare, outcome)
		}
	}
	for _, result := range []string{`{}`, `[]`, `{"_meta":null}`, `{"_meta":{}}`, `{"_meta":{"a":{` + word + `:"declined"}}}`, `{"_meta":[` + word + `]}`} {
		if outcome, at := ResultOutcome(read(t, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)); outcome != "" || at.Ok() {
			t.Errorf("%s: %q", result, outcome)
		}
	}
}

// TestElicits: forms were all there was before there were addresses.
func TestElicits(t *testing.T) {
	for capability, want := range map[string]bool{`{}`: true, `{"form":{}}`: true, `{"url":{}}`: false, `{"url":{},"form":{}}`: true, `null`: false, `true`: false} {
		modern := read(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"`+metaCapabilities+`":{"elicitation":`+capability+`}}}}`)
		h := &Handshake{}
		h.Sent(read(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"elicitation":`+capability+`}}}`))
		if modern.Elicits() != want || h.Elicits() != want {
			t.Errorf("%s: %v and %v", capability, modern.Elicits(), h.Elicits())
		}
	}
	if (&Handshake{}).Elicits() || read(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`).Elicits() {
		t.Error("who says nothing takes questions")
	}
}

// FuzzQuestion: whatever a worker sends, it is a question or an error; what is cut out of
// a result leaves a message.
func FuzzQuestion(f *testing.F) {
	f.Add(`{"call":"b-1","message":"M","timeoutMs":5}`)
	f.Add(`{"_meta":{"a":1,"io.github.belayhq/outcome":"declined"}}`)
	f.Add(`{"_meta":{"io.github.belayhq/outcome":"declined" ,"b":[]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		m := &Message{}
		if m.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":`+text+`}`)) == nil {
			if q, err := ReadQuestion(m); err == nil && (q.Call == "" || q.Message == "" || q.Timeout < 0) {
				t.Errorf("%+v", q)
			}
		}
		if m.Read([]byte(`{"jsonrpc":"2.0","id":1,"result":`+text+`}`)) != nil {
			return
		}
		if _, at := ResultOutcome(m); at.Ok() {
			bare := &Message{}
			if err := bare.Read(jsonrpc.AppendSplice(nil, m.Frame, jsonrpc.Edit{At: at})); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
