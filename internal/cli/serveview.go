package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/serve"
)

// served is the shape of belay serve --json.
type served struct {
	URL        string                `json:"url"`
	All        string                `json:"all"` // all servers as one
	Pid        int                   `json:"pid"`
	Version    string                `json:"version"`
	Servers    []servedServer        `json:"servers"`
	MCPServers map[string]servedHTTP `json:"mcpServers"` // for a client's mcp.json

	program string // how this program is called
	trial   string // a command that calls a tool; empty: not known
}

type servedServer struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	Behind string `json:"behind"`
}

type servedHTTP struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

func (s *server) served(defs []serve.Definition) served {
	out := served{
		URL: "http://" + s.addr.String(), Pid: os.Getpid(), Version: Version(),
		All: "http://" + s.addr.String() + serve.JoinedPath, program: programName(), Servers: make([]servedServer, 0, len(defs)), MCPServers: make(map[string]servedHTTP, len(defs)),
	}
	for i := range defs {
		url := out.URL + serve.Path(defs[i].Name)
		out.Servers = append(out.Servers, servedServer{defs[i].Name, url, behind(&defs[i])})
		out.MCPServers[defs[i].Name] = servedHTTP{"http", url}
		if defs[i].Serve != nil {
			out.trial = trial(url)
		}
	}
	return out
}

// programName is what to type for this program: its name, where the shell finds
// it by that.
func programName() string {
	if _, err := exec.LookPath("belay"); err == nil {
		return "belay"
	}
	return os.Args[0]
}

// trial is a command line that calls the built-in tool wait, as a client of the
// stateless revision does: without a handshake, and stopped by hanging up.
func trial(url string) string {
	return "curl -s " + url + ` \
    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -H 'MCP-Protocol-Version: ` + mcp.Revision26 + `' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: wait' \
    -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{"seconds":60},
         "_meta":{"io.modelcontextprotocol/protocolVersion":"` + mcp.Revision26 + `","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},
                  "io.modelcontextprotocol/clientCapabilities":{}}}}'`
}

// announce prints what is served and what to do with it.
func (s *server) announce(defs []serve.Definition) error {
	out := s.served(defs)
	if s.plan.cmd.JSON {
		return json.NewEncoder(s.env.Stdout).Encode(out)
	}
	return out.print(s.env.Stdout, styleOf(s.env.Stdout, s.env.Getenv))
}

func (v *served) print(w io.Writer, st style) error {
	var b strings.Builder
	if len(v.Servers) == 0 {
		fmt.Fprintf(&b, "Belay listens on %s and serves nothing yet: name a server in the configuration.\n", v.URL)
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "Belay serves %s on %s\n\n", count(len(v.Servers), "MCP server"), v.URL)
	t := table{columns: []column{{head: "SERVER"}, {head: "BEHIND", min: 12}, {head: "URL"}}}
	for _, s := range v.Servers {
		t.add(cell{s.Name, bold}, cell{oneLine(s.Behind), plain}, cell{s.URL, plain})
	}
	t.print(&b, st)
	b.WriteString("\nPut this into your client's mcp.json:\n\n  {\"mcpServers\": {\n")
	for i, s := range v.Servers {
		comma := ","
		if i == len(v.Servers)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, "    %q: {\"type\": \"http\", \"url\": %q}%s\n", s.Name, s.URL, comma)
	}
	fmt.Fprintf(&b, "  }}\n\nOr one URL for all, with tools named SERVER__TOOL: %s\n\nFrom any terminal:\n\n", v.All)
	for _, line := range [][2]string{
		{"ps --tree", "what runs"},
		{"cancel RUN", "stop one run and everything below it, and see the proof"},
		{"cancel --all", "stop all work"},
	} {
		fmt.Fprintf(&b, "  %s  %s\n", st.paint(bold, fmt.Sprintf("%s %-12s", v.program, line[0])), st.paint(faint, line[1]))
	}
	if v.trial != "" {
		fmt.Fprintf(&b, "\nNo client at hand? This calls a tool that waits; stop it by Ctrl-C or from another terminal:\n\n  %s\n", v.trial)
	}
	b.WriteString("\nCtrl-C ends Belay and every process that it started.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
