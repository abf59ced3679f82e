//go:build unix

package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/ledger"
)

// A receipt that a client waited for is in the file when the answer is there, by
// any door (DESIGN 12: acknowledged receipt). A reader beside the server sees
// what is committed and nothing else.
func TestReceiptIsOnDiskBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *settings) {
		c.servers["answers"] = c.tool(map[string]any{"grace": "20s"}, "-name", "answers", "-reply", "iserror")
	})
	disk, err := ledger.OpenReader(filepath.Join(s.dir, "state", "ledger.db"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	c := s.begin(t, "ann", "answers")
	for n := range 24 {
		id := fmt.Sprintf("disk-%d", n)
		got := c.tick(t, `"`+id+`"`, id)
		run := s.status(t, "op", id).Run
		var a answer
		switch n % 4 {
		case 0, 1:
			a = s.tryCancel(t, "op", id, `"wait":20`)
		case 2:
			a = s.do(t, "POST", "/v1/runs/"+run.String()+"/cancel", "op", `{"wait":20}`)
		case 3:
			a = s.do(t, "POST", "/v1/cancel", "op", `{"ids":["`+run.String()+`"],"wait":20}`)
		}
		rec, err := disk.Get(t.Context(), run)
		if a.status != 200 || err != nil || rec.Receipt == nil || !rec.Receipt.Final || rec.Outcome != belay.Cancelled || !strings.Contains(a.body, string(rec.Receipt.Verdict)) {
			t.Errorf("answered %d %.300s\nthe file has %+v, %v", a.status, a.body, rec, err)
		}
		wait(t, got)
	}
}

// What is not configured is not stored: arguments, partial results, command
// lines of survivors (DESIGN 15).
func TestLedgerKeepsNoContent(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.begin(t, "ann", "tools")
	got := c.tick(t, `"private"`, "private-argument")
	s.cancel(t, "op", "private", `"wait":10`)
	wait(t, got)
	wait(t, c.call(t, `"echoed"`, "echo", `{"text":"private-argument"}`))
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "state", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"private-argument", token("op"), token("ann"), "faketool"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%q is in %s", secret, filepath.Base(f))
			}
		}
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", filepath.Base(f), info.Mode(), err)
		}
	}
}

// Where nobody is configured, the MCP endpoints need no token on loopback, and
// the REST doors this user's own, which is made at the first start (DESIGN 11,
// 10; ORC-34).
func TestLocalToken(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *settings) { delete(c.top, "auth") })
	file := filepath.Join(s.dir, "local-token")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token's file: %v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	local := strings.TrimSpace(string(text))
	c := s.begin(t, "", "tools")
	got := c.tick(t, `"local"`, "local")
	for _, path := range []string{"/v1/runs", "/orchestrate/status/local", "/v1/receipts", "/v1/events"} {
		if a := s.do(t, "GET", path, "", ""); a.status != 401 {
			t.Errorf("%s without a token: %d %s", path, a.status, a.body)
		}
		if a := s.do(t, "GET", path, token("op"), ""); a.status != 401 {
			t.Errorf("%s with a token of somebody: %d %s", path, a.status, a.body)
		}
	}
	list := into[struct{ Runs []belay.Info }](t, s.do(t, "GET", "/v1/runs?kind=call", local, ""), 200)
	if len(list.Runs) != 1 || list.Runs[0].Owner != "local" {
		t.Errorf("%+v", list.Runs)
	}
	if a, err := s.client(local, "").Cancel(t.Context(), "local", nil); err != nil || a.Status != "cancelled" {
		t.Errorf("%s, %v", a.Raw, err)
	}
	if r := wait(t, got); r.code() != -32800 && r.raw != "" {
		t.Errorf("the caller got %s", r.raw)
	}
	if strings.Contains(s.log.String(), local) {
		t.Error("the token is in the log")
	}
}

// The description that is served says what is served: each of the family's
// answers that this package saw has its path in it.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := plain(t)
	a := s.do(t, "GET", "/openapi.json", "op", "")
	doc := into[struct {
		OpenAPI string                                `json:"openapi"`
		Paths   map[string]map[string]json.RawMessage `json:"paths"`
	}](t, a, 200)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("openapi %q", doc.OpenAPI)
	}
	for _, f := range families {
		if doc.Paths[f+"/cancel"]["post"] == nil || doc.Paths[f+"/status/{request_id}"]["get"] == nil {
			t.Errorf("%s is not described", f)
		}
	}
	for path, method := range map[string]string{"/v1/runs": "get", "/v1/runs/{id}": "get", "/v1/runs/{id}/cancel": "post", "/v1/cancel": "post", "/v1/receipts": "get", "/v1/events": "get", "/v1/latch": "post"} {
		if doc.Paths[path][method] == nil {
			t.Errorf("%s %s is not described", method, path)
		}
	}
}

// A ledger that is damaged keeps a server from starting that was told to have
// one, says what to do, and is left as it is.
func TestDamagedLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "state", "ledger.db")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("this is no ledger"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err := launch(dir)
	if err == nil {
		_ = s.end()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "mv "+file) {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "this is no ledger" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(file + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
