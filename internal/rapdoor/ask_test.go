package rapdoor_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rapdoor"
	"github.com/belayhq/belay/internal/rappeer"
)

// asks are the arguments of a call that elicits.
func asks(key, schema string, more ...any) map[string]any {
	a := map[string]any{"key": key, "method": "elicitation/create", "params": map[string]any{"message": "Delete it?", "requestedSchema": raw(schema)}}
	for i := 0; i < len(more); i += 2 {
		a[more[i].(string)] = more[i+1]
	}
	return a
}

type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

const oneButton = `{"type":"object","required":["answer"],"properties":{"answer":{"type":"string","enum":["Delete","Keep"]}}}`

// choice is the next message of the call, which asks; the second value answers it.
func (r *rig) choice(thread, id string, n int) (rappeer.Message, func(selected any) int) {
	r.t.Helper()
	m, err := r.Wait(r.ctx, thread, id, n)
	if err != nil || m.Type != "user_choice" {
		r.t.Fatalf("%s %v", m.Body, err)
	}
	return m, func(selected any) int {
		a, err := r.DoAs(nil, "POST", m.Raw["response_url"].(string), "application/json", fmt.Sprintf(`{"id":%q,"selected":%v}`, id, selected))
		if err != nil {
			r.t.Error(err)
		}
		return a.Status
	}
}

func (r *rig) result(thread, id string, n int) string {
	r.t.Helper()
	m, err := r.Wait(r.ctx, thread, id, n)
	if err != nil || m.Type != "tool_result" {
		r.t.Fatalf("%s %v", m.Body, err)
	}
	return m.Text
}

// AT-66, RAP-82 to RAP-84: a question of a server reaches the person behind the
// runtime as a choice, in both eras; what they pick is the server's answer, and to
// dismiss it is never a yes.
func TestAT66_AQuestionIsAUserChoice(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			r := newRig(t, tools("-era", era), nil)
			for i, tt := range []struct {
				selected any
				status   int
				want     string
			}{
				{0, 200, `{"action":"accept","content":{"answer":"Delete"}}`},
				{1, 200, `{"action":"accept","content":{"answer":"Keep"}}`},
				{2, 200, `{"action":"cancel"}`},  // what a runtime posts when it is dismissed
				{-1, 400, `{"action":"cancel"}`}, // none of the choices
				{3, 400, `{"action":"cancel"}`},
			} {
				id := fmt.Sprint("call_", i)
				r.invoke("ask", "t", id, asks(id, oneButton))
				m, answer := r.choice("t", id, 1)
				if m.Raw["prompt"] != "Delete it?" || m.Raw["default"] != 2.0 || !reflect.DeepEqual(m.Raw["choices"], []any{"Delete", "Keep", "No answer"}) {
					t.Errorf("asked %s", m.Body)
				}
				if got := answer(tt.selected); got != tt.status {
					t.Errorf("selected %v: status %d, want %d", tt.selected, got, tt.status)
				}
				if got := r.result("t", id, 2); !strings.Contains(got, tt.want) {
					t.Errorf("selected %v: the server got %s, want %s", tt.selected, got, tt.want)
				}
				if got := answer(0); got != http.StatusNotFound {
					t.Errorf("a second answer: status %d", got)
				}
			}
		})
	}
}

// A form of several fields is asked field by field; one dismissal ends it. A yes or
// no has no fields.
func TestAT66_FormsOfSeveralFields(t *testing.T) {
	r := newRig(t, tools(), nil)
	const two = `{"type":"object","required":["sure"],"properties":{
		"sure":{"type":"boolean","description":"Really?"},
		"note":{"type":"string"},
		"color":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"b","title":"Blue"}]}}}`
	r.invoke("ask", "t", "a", asks("a", two))
	m, answer := r.choice("t", "a", 1)
	if m.Raw["prompt"] != "Delete it?\n\nReally?" || !reflect.DeepEqual(m.Raw["choices"], []any{"Yes", "No", "No answer"}) {
		t.Errorf("asked %s", m.Body)
	}
	answer(1)
	m, answer = r.choice("t", "a", 2)
	if m.Raw["prompt"] != "Delete it?\n\ncolor" || !reflect.DeepEqual(m.Raw["choices"], []any{"Red", "Blue", "No answer"}) {
		t.Errorf("asked %s", m.Body)
	}
	answer(1)
	if got := r.result("t", "a", 3); !strings.Contains(got, `{"action":"accept","content":{"sure":false,"color":"b"}}`) {
		t.Error(got)
	}
	r.invoke("ask", "t", "b", asks("b", two))
	_, answer = r.choice("t", "b", 1)
	answer(2)
	if got := r.result("t", "b", 2); !strings.Contains(got, `{"action":"cancel"}`) {
		t.Error(got)
	}
	for i, want := range []string{`{"action":"accept","content":{}}`, `{"action":"decline"}`, `{"action":"cancel"}`} {
		id := fmt.Sprint("plain", i)
		r.invoke("ask", "t", id, asks(id, `{"type":"object","properties":{}}`))
		m, answer := r.choice("t", id, 1)
		if !reflect.DeepEqual(m.Raw["choices"], []any{"Accept", "Decline", "No answer"}) {
			t.Errorf("asked %s", m.Body)
		}
		answer(i)
		if got := r.result("t", id, 2); !strings.Contains(got, want) {
			t.Errorf("%d: %s", i, got)
		}
	}
}

// What the protocol has no question for is an error to the server, and no answer.
func TestAT66_WhatCannotBeAskedIsNoAnswer(t *testing.T) {
	r := newRig(t, tools(), nil)
	for id, a := range map[string]map[string]any{
		"text":   asks("text", `{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}`),
		"schema": asks("schema", `7`),
		"url":    {"method": "elicitation/create", "params": map[string]any{"mode": "url", "message": "m", "url": "https://x.test", "elicitationId": "1"}},
		"roots":  {"method": "roots/list"},
	} {
		r.invoke("ask", "t", id, a)
		if got := r.result("t", id, 1); !strings.Contains(got, `"code":-32`) {
			t.Errorf("%s: %s", id, got)
		}
	}
}

// RAP-85: a Stop while a person is asked withdraws the question, ends the call with
// one message, and takes no answer any more; so does a server that has stopped asking.
func TestRAP85_AStopWithdrawsTheQuestion(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			r := newRig(t, tools("-era", era), nil)
			r.invoke("ask", "t", "a", asks("a", oneButton))
			_, answer := r.choice("t", "a", 1)
			r.cancel("t", "a")
			if got := r.result("t", "a", 2); !strings.HasPrefix(got, "Error: Cancelled by user.") {
				t.Error(got)
			}
			if got := answer(0); got != http.StatusNotFound {
				t.Errorf("an answer after the Stop: status %d", got)
			}
			if own, _ := r.runs("t", "a"); own.Outcome != belay.Cancelled || own.Cancellation == nil || own.Cancellation.Cause != belay.CauseUser {
				t.Errorf("%+v", own)
			}
			if era == "legacy" {
				r.event("a", "stopped")
			}
			if all := r.Messages("t", "a"); len(all) != 2 {
				t.Errorf("%d messages", len(all))
			}
		})
	}
	r := newRig(t, tools(), nil)
	r.invoke("ask", "t", "b", asks("b", oneButton, "cancelMs", 200))
	_, answer := r.choice("t", "b", 1)
	if got := r.result("t", "b", 2); !strings.Contains(got, "question cancelled") {
		t.Error(got)
	}
	if got := answer(0); got != http.StatusNotFound {
		t.Errorf("an answer after the withdrawal: status %d", got)
	}
}

// AT-54: what a call reports is a view of its thread, which holds the calls that run;
// a runtime that takes no views gets its results all the same.
func TestAT54_ReportsAreAView(t *testing.T) {
	r := newRig(t, tools(), nil)
	r.invoke("tick", "t", "a", map[string]any{"key": "a", "n": 1000})
	r.invoke("tick", "t", "b", map[string]any{"key": "b", "n": 1000})
	reported := func(content map[string]any) map[string]float64 {
		m := map[string]float64{}
		calls, _ := content["calls"].([]any)
		for _, c := range calls {
			c := c.(map[string]any)
			if c["operation"] != "tick" || c["total"] != 1000.0 {
				t.Errorf("%v", c)
			}
			m[c["id"].(string)], _ = c["progress"].(float64)
		}
		return m
	}
	if _, err := r.View(r.ctx, "t", func(content map[string]any) bool {
		m := reported(content)
		return m["a"] > 1 && m["b"] > 1
	}); err != nil {
		t.Fatal(err)
	}
	r.cancel("t", "a")
	r.message("t", "a")
	if _, err := r.View(r.ctx, "t", func(content map[string]any) bool {
		_, a := reported(content)["a"]
		_, b := reported(content)["b"]
		return b && !a
	}); err != nil {
		t.Error(err)
	}
	r.cancel("t", "b")
	r.message("t", "b")
	if got := rapdoor.ViewType("tools"); got != "belay.progress.tools" {
		t.Error(got)
	}

	r = newRig(t, tools(), nil)
	r.NoViews = true
	r.invoke("tick", "t", "c", map[string]any{"key": "c", "n": 20})
	if got := r.message("t", "c"); got.Type != "tool_result" {
		t.Errorf("%s", got.Body)
	}
}
