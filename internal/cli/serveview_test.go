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
	s := server{conf: &config.Config{}, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7474}}
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
