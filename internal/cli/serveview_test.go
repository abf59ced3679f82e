package cli

import (
	"net"
	"strings"
	"testing"

	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/serve"
)

// TestServeSays: what belay serve prints for people, without anything that may
// be secret.
func TestServeSays(t *testing.T) {
	files, search, own := config.New("files", config.Policy{}), config.New("search", config.Policy{}), config.New("own", config.Policy{})
	files.Command = []string{"npx", "-y", "@modelcontextprotocol/server-filesystem", "--key=hush"}
	search.URL = "https://user:hush@search.example.com/mcp?key=hush"
	own.Command = []string{"/opt/bin/own", "hush"}
	s := server{conf: &config.Config{Settings: config.Settings{Ledger: config.Ledger{Enabled: true}, RAP: config.RAP{Offer: true}}}, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7474}}
	v := s.served([]serve.Definition{{Server: files}, {Server: search}, {Server: own}})
	v.program = "belay"
	var b strings.Builder
	if err := v.print(&b, style{}); err != nil {
		t.Fatal(err)
	}
	const want = `Belay serves 3 MCP servers on http://127.0.0.1:7474

SERVER  BEHIND                      URL
files   npx server-filesystem       http://127.0.0.1:7474/mcp/files
search  https://search.example.com  http://127.0.0.1:7474/mcp/search
own     own                         http://127.0.0.1:7474/mcp/own

Put this into your client's mcp.json:

  {"mcpServers": {
    "files": {"type": "http", "url": "http://127.0.0.1:7474/mcp/files"},
    "search": {"type": "http", "url": "http://127.0.0.1:7474/mcp/search"},
    "own": {"type": "http", "url": "http://127.0.0.1:7474/mcp/own"}
  }}

Or one URL for all, with tools named SERVER__TOOL: http://127.0.0.1:7474/mcp
For runtimes of the Reactive Agent Protocol each is a toolset: http://127.0.0.1:7474/rap/SERVER

From any terminal:

  belay ps --tree     what runs
  belay cancel RUN    stop one run and everything below it, and see the proof
  belay cancel --all  stop all work
  belay receipts      what was stopped, and the proof of it, after a restart too

The same over REST, described at http://127.0.0.1:7474/openapi.json:

  curl -s -H "Authorization: Bearer $(belay token)" http://127.0.0.1:7474/v1/runs

Ctrl-C ends Belay and every process that it started.
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
	b.Reset()
	none := s.served(nil)
	if err := none.print(&b, style{}); err != nil || !strings.Contains(b.String(), "serves nothing yet") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestServeSaysWhatIsAnswered: where other machines are let in, the URL that is
// printed has a name that is served, and the commands a token that is good there.
func TestServeSaysWhatIsAnswered(t *testing.T) {
	every := &net.TCPAddr{IP: net.IPv4zero, Port: 7474}
	one := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7474}
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7474}
	for _, c := range []struct {
		addr  *net.TCPAddr
		hosts []string
		url   string
	}{
		{every, []string{"*", "belay.example"}, "http://belay.example:7474"},
		{every, []string{"belay.example:8443"}, "http://belay.example:8443"},
		{one, []string{"[2001:db8::1]"}, "http://[2001:db8::1]:7474"},
		{one, nil, "http://192.0.2.1:7474"},
		{loopback, []string{"belay.example"}, "http://127.0.0.1:7474"},
	} {
		s := server{conf: &config.Config{Settings: config.Settings{Hosts: c.hosts}}, addr: c.addr}
		if got := s.url(); got != c.url {
			t.Errorf("%v, hosts %v: %s, want %s", c.addr, c.hosts, got, c.url)
		}
	}
	files := config.New("files", config.Policy{})
	files.Command = []string{"files"}
	conf := &config.Config{Settings: config.Settings{
		Hosts: []string{"belay.example"}, Ledger: config.Ledger{Enabled: true, Path: "/var/lib/belay.db"},
	}}
	conf.Auth.Tokens = []config.Token{{Name: "ci"}}
	for _, c := range []struct {
		addr *net.TCPAddr
		ask  string
	}{
		{every, `"Authorization: Bearer TOKEN" http://belay.example:7474/v1/runs`},
		{loopback, `"Authorization: Bearer $(belay token)" http://127.0.0.1:7474/v1/runs`},
	} {
		s := server{conf: conf, addr: c.addr}
		v := s.served([]serve.Definition{{Server: files}})
		v.program = "belay"
		var b strings.Builder
		if err := v.print(&b, style{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{c.ask, "--ledger /var/lib/belay.db", `"belay token new NAME" makes one`} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%v: no %q in:\n%s", c.addr, want, b.String())
			}
		}
	}
}

// TestLatchLiesBesideTheLedger: two servers with a ledger each do not engage one
// another's latch.
func TestLatchLiesBesideTheLedger(t *testing.T) {
	env := &Env{Getenv: func(name string) string { return map[string]string{config.EnvStateDir: "/state"}[name] }}
	for _, c := range []struct{ latch, ledger, want string }{
		{"", "", "/state/latch.json"},
		{"", "/srv/a/ledger.db", "/srv/a/latch.json"},
		{"/srv/b/latch", "/srv/a/ledger.db", "/srv/b/latch"},
	} {
		conf := &config.Config{Settings: config.Settings{Latch: config.Latch{File: c.latch}, Ledger: config.Ledger{Path: c.ledger}}}
		if got := latchFile(env, conf); got != c.want {
			t.Errorf("latch.file %q, ledger.path %q: %s, want %s", c.latch, c.ledger, got, c.want)
		}
	}
}
