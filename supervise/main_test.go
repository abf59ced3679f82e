package supervise

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/proc"
)

func TestMain(m *testing.M) {
	proc.Main()
	faketool.MaybeRun()
	if len(os.Args) == 3 && os.Args[1] == holdMarker {
		hold(os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

const holdMarker = "supervise-test-hold"

// hold is a client of a container daemon: it keeps a connection open.
func hold(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("connected")
	time.Sleep(time.Minute)
	_ = conn.Close()
	os.Exit(0)
}
