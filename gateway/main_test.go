package gateway

import (
	"flag"
	"io"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/proc"
)

// TestMain makes the test binary the programs that tests start: a guardian, a
// fake server, and a puppet, which is a server that the test itself plays.
func TestMain(m *testing.M) {
	proc.Main() // never returns in a guardian
	faketool.MaybeRun()
	if len(os.Args) == 3 && os.Args[1] == puppetMarker {
		puppet(os.Args[2])
	}
	if len(os.Args) > 4 && os.Args[1] == scriptMarker {
		scriptWorker(os.Args[2:])
	}
	// Most tests wait for times to pass, few compute: more at once than there
	// are processors. A -parallel on the command line wins.
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(m)
}

const puppetMarker = "gateway-test-puppet"

// puppet connects its stdin and stdout to a socket of the test, which then is
// the server, byte for byte. It ends at the end of stdin or of the socket.
func puppet(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		os.Exit(0)
	}()
	_, _ = io.Copy(os.Stdout, conn)
	os.Exit(0)
}
