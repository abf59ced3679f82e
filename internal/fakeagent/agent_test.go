package fakeagent

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	MaybeRun()
	goleak.VerifyTestMain(m)
}

// Every mode does what it is named for, and ends with its connection.
func TestEachModeEndsAStoppedTurnInItsWay(t *testing.T) {
	want := map[Mode]string{
		Obedient: `"stopReason":"cancelled"`, ShellOn: `"stopReason":"cancelled"`, Deaf: "", EndTurn: `"stopReason":"end_turn"`,
		Internal: "-32603", Cancelled: "-32800", Twice: `"stopReason":"end_turn"`, Late: `"stopReason":"cancelled"`,
		WrongID: `"id":12345`, Flood: "flood 499", Dies: "", HalfLine: `"resu`, Waits: `"stopReason":"cancelled"`,
		NoResult: `{"jsonrpc":"2.0","id":3}`, NoReason: `"result":{}}`, KeepsGoing: "after the end 2", ByRequest: "",
	}
	for _, mode := range Modes {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "witness")
				in, toAgent := io.Pipe()
				fromAgent, out := io.Pipe()
				served := make(chan error, 1)
				go func() { served <- Serve(in, out, Options{Witness: path}) }()
				var heard strings.Builder
				read := make(chan struct{})
				go func() {
					defer close(read)
					_, _ = io.Copy(&heard, bufio.NewReader(fromAgent))
				}()
				for _, line := range []string{
					`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`,
					`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{}}`,
					fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s_1","prompt":[{"type":"text","text":"{\"mode\":\"%s\",\"updates\":2}"}]}}`, mode),
					`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s_1"}}`,
				} {
					_, _ = io.WriteString(toAgent, line+"\n")
				}
				time.Sleep(time.Second)
				_ = toAgent.Close()
				err := <-served
				<-read
				if died := mode == Dies || mode == HalfLine; (err != nil) != died {
					t.Errorf("Serve returned %v", err)
				}
				if !strings.Contains(heard.String(), want[mode]) || !strings.Contains(heard.String(), "part 1") {
					t.Errorf("it said\n%s\nwant %q in it", heard.String(), want[mode])
				}
				if wit, _ := os.ReadFile(path); !strings.Contains(string(wit), " s_1 cancel") || !strings.Contains(string(wit), " s_1 prompt "+string(mode)) {
					t.Errorf("witness:\n%s", wit)
				}
			})
		})
	}
}
