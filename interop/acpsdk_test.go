package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What fails a row, and what does not.
func TestSDKRowJudge(t *testing.T) {
	good := sdkRow{told: "cancelled", want: "cancelled", next: "end_turn", wantNext: "end_turn"}
	for name, tc := range map[string]struct {
		change func(*sdkRow)
		fails  string
	}{
		"good":             {func(*sdkRow) {}, ""},
		"a little late":    {func(r *sdkRow) { r.wentOn = 200 * time.Millisecond }, ""},
		"still at it":      {func(r *sdkRow) { r.stillAt = true }, "went on"},
		"late":             {func(r *sdkRow) { r.wentOn = 5 * time.Second }, "went on for 5s"},
		"wrong end":        {func(r *sdkRow) { r.told = "end_turn" }, "want cancelled"},
		"next call fails":  {func(r *sdkRow) { r.next = "-32603" }, "next: want end_turn"},
		"it did not run":   {func(r *sdkRow) { r.problem = "exit status 1" }, "exit status 1"},
		"nobody was asked": {func(r *sdkRow) { r.told = "" }, "want cancelled"},
	} {
		r := good
		tc.change(&r)
		r.judge()
		if r.failed() != (tc.fails != "") || !strings.Contains(r.problem, tc.fails) {
			t.Errorf("%s: %q", name, r.problem)
		}
	}
}

// The witness decides, not what anybody says.
func TestSDKRowWitness(t *testing.T) {
	r := sdkRow{dir: t.TempDir(), stop: time.UnixMilli(1000)}
	if err := r.look(); err != nil || r.worked {
		t.Errorf("without a witness: %v, worked %v", err, r.worked)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "witness"), []byte("900\n950\n1004\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.look(); err != nil || !r.worked || r.stillAt || r.wentOn != 4*time.Millisecond {
		t.Errorf("%+v, %v", r, err)
	}
}

// Each peer has the rows that its roles and versions allow.
func TestSDKRows(t *testing.T) {
	both := sdkPeer{name: "x", agent: func(int) []string { return nil }, client: []string{"x"}, v2: true}
	if n := len(both.rows()); n != 8+7 {
		t.Errorf("%d rows", n)
	}
	agent := sdkPeer{name: "x", agent: func(int) []string { return nil }, events: []string{sdkPrompt}, wants: map[string]string{"agent " + sdkPrompt: "end_turn"}}
	rows := agent.rows()
	if len(rows) != 1 || rows[0].want != "end_turn" || rows[0].role != "agent" {
		t.Errorf("%+v", rows)
	}
}
