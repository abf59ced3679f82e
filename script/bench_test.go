package script

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkCall is one call of a tool that is loaded: a fresh machine, the script's
// top level, one promise.
func BenchmarkCall(b *testing.B) {
	dir := b.TempDir()
	for name, text := range map[string]string{
		ManifestFile:        `{"id":"probe","description":"d","parameters":[]}`,
		"assistant_tool.ts": `AssistantTool.registerExecuteTool(async () => { await null; return {success: true, message: "x"} })`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	tool, err := Load(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		call, err := tool.Call([]byte("{}"), Options{})
		if err != nil {
			b.Fatal(err)
		}
		if e := call.Run(context.Background()); !e.Result.Success {
			b.Fatalf("%+v", e)
		}
	}
}
