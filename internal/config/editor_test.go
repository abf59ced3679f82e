package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEditors: the files of the editors are read as they are.
func TestEditors(t *testing.T) {
	vars := env(map[string]string{"HOME": "/home/u", "KEY": "k", "PORT": "9"})
	for _, tt := range []struct {
		name, text string
		want       []Server // the parts that a file says
		notes      []string // parts of them
	}{
		{
			"Claude Desktop", `{"mcpServers": {"files": {"command": "/opt/my tools/run", "args": ["-y", "x y"], "env": {"A": "1"}}}, "globalShortcut": "x"}`,
			[]Server{{Name: "files", Command: commandLine{"/opt/my tools/run", "-y", "x y"}, Env: map[string]string{"A": "1"}}},
			nil,
		},
		{
			"Claude Code", `{"mcpServers": {
				"a": {"type": "stdio", "command": "${HOME}/bin/a", "args": [], "env": {"K": "${KEY}", "N": "${NOPE:-no}"}},
				"b": {"type": "http", "url": "http://127.0.0.1:${PORT}/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
				"c": {"type": "sse", "url": "http://127.0.0.1:1/sse"}}}`,
			[]Server{
				{Name: "a", Command: commandLine{"/home/u/bin/a"}, Env: map[string]string{"K": "k", "N": "no"}},
				{Name: "b", URL: "http://127.0.0.1:9/mcp", Headers: map[string]string{"Authorization": "Bearer k"}, Transport: Some("streamable")},
				{Name: "c", URL: "http://127.0.0.1:1/sse", Transport: Some("sse")},
			},
			nil,
		},
		{
			"Cursor", `{"mcpServers": {"a": {"command": "x", "args": ["${userHome}", "${workspaceFolder}", "${env:KEY}"]}}}`,
			[]Server{{Name: "a", Command: commandLine{"x", "/home/u", "${workspaceFolder}", "k"}}},
			[]string{"${workspaceFolder} is not known here"},
		},
		{
			"VS Code", `{
				// what the editor asks for
				"inputs": [{"type": "promptString", "id": "token", "password": true,},],
				"servers": {
					"a": {"type": "stdio", "command": "x", "env": {"A": null, "B": "2"},}, /* done */
					"b": {"type": "http", "url": "http://x/mcp", "headers": {"T": "${input:token}"}},
				},
			}`,
			[]Server{{Name: "a", Command: commandLine{"x"}, Env: map[string]string{"B": "2"}}},
			[]string{"${input:token}, which only the editor can ask for"},
		},
		{
			"VS Code's settings", `{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "x"}}}}`,
			[]Server{{Name: "a", Command: commandLine{"x"}}},
			nil,
		},
		{
			"Zed", `{"theme": "One", "context_servers": {
				"a": {"source": "custom", "command": "x", "args": ["1"]},
				"b": {"command": {"path": "y", "args": ["2"], "env": {"A": "1"}}, "settings": {}},
				"c": {"source": "extension", "enabled": true, "settings": {"k": 1}},
				"d": {"enabled": false, "command": "x"}}}`,
			[]Server{
				{Name: "a", Command: commandLine{"x", "1"}},
				{Name: "b", Command: commandLine{"y", "2"}, Env: map[string]string{"A": "1"}},
			},
			[]string{`"c" has neither`, `"d" is disabled`},
		},
		{
			"Windsurf", `{"mcpServers": {"a": {"serverUrl": "http://x/sse"}, "b": {"command": "x", "disabled": true, "alwaysAllow": []}}}`,
			[]Server{{Name: "a", URL: "http://x/sse", Transport: Some("auto")}},
			[]string{`"b" is disabled`},
		},
		{
			"Gemini", `{"mcpServers": {"a": {"httpUrl": "http://x/mcp", "timeout": 5000, "trust": true}, "b": {"command": "x", "cwd": "/srv", "includeTools": ["y"]}}}`,
			[]Server{
				{Name: "a", URL: "http://x/mcp", Transport: Some("auto")},
				{Name: "b", Command: commandLine{"x"}, Dir: "/srv"},
			},
			nil,
		},
		{
			"names", "\xef\xbb\xbf" + `{"mcpServers": {"My Server (v2)": {"command": "x"}, "a__b": {"command": "y"}, "me": {"url": "http://localhost:7474/mcp/files"}}}`,
			[]Server{{Name: "My-Server-v2", Command: commandLine{"x"}}, {Name: "a_b", Command: commandLine{"y"}}},
			[]string{`served as "My-Server-v2"`, `served as "a_b"`, "points at Belay itself"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := load(t, Options{Editors: []string{write(t, "mcp.json", tt.text)}, Getenv: vars})
			base := Defaults()
			for i, got := range c.Servers {
				if diff := cmp.Diff(base, got.Policy); diff != "" {
					t.Errorf("%s has not the defaults: %s", got.Name, diff)
				}
				got.Policy, got.Source = Policy{}, ""
				if i < len(tt.want) && !tt.want[i].Transport.Set {
					got.Transport = Option[string]{}
				}
				if i >= len(tt.want) {
					t.Errorf("one too many: %+v", got)
				} else if diff := cmp.Diff(tt.want[i], got); diff != "" {
					t.Error(diff)
				}
			}
			if len(c.Servers) < len(tt.want) {
				t.Errorf("%d servers, want %d; notes %q", len(c.Servers), len(tt.want), c.Notes)
			}
			for _, want := range tt.notes {
				if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, want) }) {
					t.Errorf("no note says %q: %q", want, c.Notes)
				}
			}
			if len(c.Notes) != len(tt.notes) {
				t.Errorf("notes: %q", c.Notes)
			}
		})
	}
}

// TestEnvFile: VS Code's envFile is read; env goes before it.
func TestEnvFile(t *testing.T) {
	file := write(t, ".env", "# c\nexport A=1\nB = 'two'\nC=\"3\"\nbroken\n")
	c := load(t, Options{Editors: []string{write(t, "mcp.json", `{"servers": {"a": {"command": "x", "env": {"C": "own"}, "envFile": "`+file+`"}}}`)}})
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "two", "C": "own"}, c.Servers[0].Env); diff != "" {
		t.Error(diff)
	}
}
