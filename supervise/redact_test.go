package supervise

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestRedact proves DESIGN 11, 15 for command lines.
func TestRedact(t *testing.T) {
	const opaqueKey = "4f9a1c77e2b84d0fa6c35b1e9d7702c8aa41"
	for command, want := range map[string]string{
		"node server.js --port 80":                        "node server.js --port 80",
		"tool --token=abc":                                "tool --token=[redacted]",
		"tool --token abc --port 80":                      "tool --token [redacted] --port 80",
		"tool -password hunter2":                          "tool -password [redacted]",
		"tool --db-password=hunter2 x":                    "tool --db-password=[redacted] x",
		"env API_KEY=abc OPENAI_API_KEY=sk-1 node s.js":   "env API_KEY=[redacted] OPENAI_API_KEY=[redacted] node s.js",
		"tool --api-key abc":                              "tool --api-key [redacted]",
		"tool --client_secret:abc":                        "tool --client_secret:[redacted]",
		"curl -H Authorization: Bearer abc.def http://x":  "curl -H Authorization:[redacted] [redacted] [redacted] http://x",
		"curl -H X-Api-Key:abc http://x":                  "curl -H X-Api-Key:[redacted] http://x",
		"psql postgres://me:pw@db/x":                      "psql postgres://[redacted]@db/x",
		"npx mcp-remote https://x/mcp?token=abc&a=b":      "npx mcp-remote https://x/mcp?token=[redacted]&a=b",
		"tool https://x/y?X-Signature=abc":                "tool https://x/y?X-Signature=[redacted]",
		"tool ghp_abcdefghijklmnop":                       "tool [redacted]",
		"tool " + opaqueKey:                               "tool [redacted]",
		"tool --id=" + opaqueKey:                          "tool --id=[redacted]",
		"sh -c sleep 10; echo \x1b[31mred\nline":          "sh -c sleep 10; echo [31mred line",
		"npx -y @modelcontextprotocol/server-everything":  "npx -y @modelcontextprotocol/server-everything",
		"python3 -m some_long_module_name_that_is_a_name": "python3 -m some_long_module_name_that_is_a_name",
		"tool --keyboard us --monkey x":                   "tool --keyboard us --monkey x",
		"/usr/bin/keyctl show":                            "/usr/bin/keyctl show",
		"":                                                "",
	} {
		if got := Redact(command); got != want {
			t.Errorf("Redact(%q)\n got %q\nwant %q", command, got, want)
		}
	}
	long := Redact("tool " + strings.Repeat("ä ", 500))
	if len(long) > maxCommand || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("a long command became %d bytes: %q", len(long), long)
	}
}

// FuzzRedact: nothing makes it panic, grow or let a control character pass,
// and the value of a flag that names a secret never survives.
func FuzzRedact(f *testing.F) {
	f.Add("tool --token=abc", "xyzzy-plugh")
	f.Add("Authorization: Basic", "")
	f.Fuzz(func(t *testing.T, command, secret string) {
		got := Redact(command)
		if len(got) > maxCommand || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\r\x00") {
			t.Errorf("Redact(%q) = %q", command, got)
		}
		secret = strings.Join(strings.Fields(printable(secret)), "")
		if len(secret) < 3 || strings.Contains("tool --password= [redacted]", secret) {
			return
		}
		if got := Redact("tool --password=" + secret); strings.Contains(got, secret) {
			t.Errorf("Redact let %q through: %q", secret, got)
		}
	})
}
