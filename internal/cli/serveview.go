package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/serve"
)

// served is the shape of belay serve --json.
type served struct {
	URL        string                `json:"url"`
	All        string                `json:"all"`              // all servers as one
	Admin      string                `json:"admin"`            // the REST API
	RAP        string                `json:"rap,omitempty"`    // below which each server is a toolset for runtimes
	Socket     string                `json:"socket,omitempty"` // the unix socket behind the URLs, if it is one
	Auth       bool                  `json:"auth"`             // MCP clients have to say who they are
	Pid        int                   `json:"pid"`
	Version    string                `json:"version"`
	Servers    []servedServer        `json:"servers"`
	MCPServers map[string]servedHTTP `json:"mcpServers"` // for a client's mcp.json

	program string // how this program is called
	reached bool   // other machines reach it, where this user's own token is worth nothing
	proof   string // how long receipts are there
	scripts string // where the examples of scripts lie; empty: they are not served
	trial   string // a command that calls a tool; empty: not known
}

type servedServer struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	Behind string `json:"behind"`
}

type servedHTTP struct {
	Type    string            `json:"type"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// bearer is what a client has to send where somebody is configured; the token is
// the reader's to fill in.
var bearer = map[string]string{"Authorization": "Bearer TOKEN"}

func (s *server) served(defs []serve.Definition) served {
	out := served{
		URL: s.url(), Pid: os.Getpid(), Version: Version(), Auth: s.conf.Auth.Configured(),
		program: programName(), reached: !s.homely(), proof: proof(&s.conf.Ledger), Servers: make([]servedServer, 0, len(defs)), MCPServers: make(map[string]servedHTTP, len(defs)),
	}
	out.All, out.Admin = out.URL+serve.JoinedPath, out.URL+"/v1"
	if s.conf.RAP.Offer {
		out.RAP = out.URL + "/rap"
		if base := s.conf.RAP.BaseURL; base != "" {
			out.RAP = strings.TrimRight(base, "/") + "/rap"
		}
	}
	if _, unix := s.addr.(*net.UnixAddr); unix {
		out.Socket = s.addr.String()
	}
	for i := range defs {
		url := out.URL + serve.Path(defs[i].Name)
		out.Servers = append(out.Servers, servedServer{defs[i].Name, url, behind(&defs[i])})
		client := servedHTTP{Type: "http", URL: url}
		if out.Auth {
			client.Headers = bearer
		}
		out.MCPServers[defs[i].Name] = client
		if defs[i].Scripts != nil && len(s.conf.Files) == 0 {
			out.scripts = defs[i].Scripts.Dirs[0]
		}
		if defs[i].Serve != nil && !out.Auth && out.Socket == "" {
			out.trial = trial(url)
		}
	}
	return out
}

// url is what everything served begins with. Behind a unix socket the host is a
// word that HTTP wants and nobody looks up.
func (s *server) url() string {
	if s.addr.Network() == "unix" {
		return "http://localhost"
	}
	host := s.addr.String()
	if tcp, ok := s.addr.(*net.TCPAddr); ok && !s.homely() {
		host = publicName(s.conf.Hosts, tcp)
	}
	if s.conf.TLS.On() {
		return "https://" + host
	}
	return "http://" + host
}

// homely reports whether only this machine reaches the address.
func (s *server) homely() bool {
	tcp, ok := s.addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// publicName is the name by which other machines are served: the first that
// hosts lists, since no other is answered then; else the address, or this
// machine's name where it is every address.
func publicName(hosts []string, at *net.TCPAddr) string {
	port := strconv.Itoa(at.Port)
	for _, name := range hosts {
		switch {
		case name == "*":
			continue
		case strings.HasSuffix(name, "]"), !strings.Contains(name, ":"):
			return name + ":" + port
		}
		return name // with a port: that of a proxy, it may be
	}
	if !at.IP.IsUnspecified() {
		return at.String()
	}
	name, err := os.Hostname()
	if err != nil {
		return at.String()
	}
	return net.JoinHostPort(name, port)
}

// proof says how long receipts are kept, and where, if belay receipts does not
// know it by itself.
func proof(l *config.Ledger) string {
	switch {
	case !l.Enabled:
		return "what was stopped, and the proof of it, for ten minutes (there is no ledger)"
	case l.Path != "":
		return "what was stopped, and the proof of it, after a restart too with --ledger " + oneLine(l.Path)
	}
	return "what was stopped, and the proof of it, after a restart too"
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
	where := v.URL
	if v.Socket != "" {
		where = "the socket " + v.Socket
	}
	if len(v.Servers) == 0 {
		fmt.Fprintf(&b, "Belay listens on %s and serves nothing yet: name a server in the configuration.\n", where)
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "Belay serves %s on %s\n\n", count(len(v.Servers), "MCP server"), where)
	t := table{columns: []column{{head: "SERVER"}, {head: "BEHIND", min: 12}, {head: "URL"}}}
	for _, s := range v.Servers {
		t.add(cell{s.Name, bold}, cell{oneLine(s.Behind), plain}, cell{s.URL, plain})
	}
	t.print(&b, st)
	if v.Socket == "" {
		v.printClients(&b)
	}
	fmt.Fprintf(&b, "\nFrom any terminal:\n\n")
	for _, line := range [][2]string{
		{"ps --tree", "what runs"},
		{"cancel RUN", "stop one run and everything below it, and see the proof"},
		{"cancel --all", "stop all work"},
		{"receipts", v.proof},
	} {
		fmt.Fprintf(&b, "  %s  %s\n", st.paint(bold, fmt.Sprintf("%s %-12s", v.program, line[0])), st.paint(faint, line[1]))
	}
	v.printAPI(&b)
	if v.trial != "" {
		fmt.Fprintf(&b, "\nNo client at hand? This calls a tool that waits; stop it by Ctrl-C or from another terminal:\n\n  %s\n", v.trial)
	}
	if v.scripts != "" {
		fmt.Fprintf(&b, "\nThe scripts of examples lie in %s; to write one: %s tool new NAME\n", oneLine(v.scripts), v.program)
	}
	b.WriteString("\nCtrl-C ends Belay and every process that it started.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// printClients says how clients reach the servers.
func (v *served) printClients(b *strings.Builder) {
	b.WriteString("\nPut this into your client's mcp.json:\n\n  {\"mcpServers\": {\n")
	for i, s := range v.Servers {
		comma := ","
		if i == len(v.Servers)-1 {
			comma = ""
		}
		headers := ""
		if v.Auth {
			headers = `, "headers": {"Authorization": "Bearer TOKEN"}`
		}
		fmt.Fprintf(b, "    %q: {\"type\": \"http\", \"url\": %q%s}%s\n", s.Name, s.URL, headers, comma)
	}
	b.WriteString("  }}\n")
	if v.Auth {
		fmt.Fprintf(b, "\nTOKEN is that of somebody in auth: of the configuration; \"%s token new NAME\" makes one.\n", v.program)
	}
	fmt.Fprintf(b, "\nOr one URL for all, with tools named SERVER__TOOL: %s\n", v.All)
	if v.RAP != "" {
		fmt.Fprintf(b, "For runtimes of the Reactive Agent Protocol each is a toolset: %s/SERVER\n", v.RAP)
	}
}

// printAPI says how the REST API is asked: by this user's own token, or over the
// socket, whose owner needs none.
func (v *served) printAPI(b *strings.Builder) {
	ask := fmt.Sprintf(`curl -s -H "Authorization: Bearer $(%s token)" %s/runs`, v.program, v.Admin)
	switch {
	case v.Socket != "":
		ask = fmt.Sprintf("curl -s --unix-socket %s %s/runs", v.Socket, v.Admin)
	case v.reached: // this user's own token is good over loopback only
		ask = fmt.Sprintf(`curl -s -H "Authorization: Bearer TOKEN" %s/runs`, v.Admin)
	}
	fmt.Fprintf(b, "\nThe same over REST, described at %s/openapi.json:\n\n  %s\n", v.URL, ask)
}
