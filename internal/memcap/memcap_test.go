package memcap_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/memcap"
)

// eater is the environment entry that makes this test binary a program which takes
// memory in some way.
const eater = "MEMCAP_TEST_EATER"

func TestMain(m *testing.M) {
	if how := os.Getenv(eater); how != "" {
		eat(how)
	}
	goleak.VerifyTestMain(m)
}

const bound = 64 << 20

var kept [][]byte

// eat takes memory under a bound and says on stdout how far it got.
func eat(how string) {
	memcap.Cap(bound, nil)
	switch how {
	case "late": // when the watch has long been asleep
		time.Sleep(1500 * time.Millisecond)
		eatMore()
	case "idle":
		time.Sleep(1500 * time.Millisecond)
		before := switches()
		time.Sleep(time.Second)
		fmt.Println("woken", switches()-before)
	case "slow": // what it has grows, a MiB at a time
		eatMore()
	case "doubling":
		s := "x"
		for range 32 {
			s += s
		}
		kept = append(kept, []byte(s))
	case "giant":
		kept = append(kept, bytes.Repeat([]byte{1}, 2<<30))
	case "garbage": // far more than the bound, but never at once
		for range 250 {
			kept = [][]byte{bytes.Repeat([]byte{1}, 4<<20)}
		}
	case "recursion":
		fmt.Println(down(1))
	case "panic":
		panic("fatal: not a matter of memory")
	}
	fmt.Println("lived", len(kept))
	os.Exit(0)
}

func eatMore() {
	for range 2048 {
		kept = append(kept, bytes.Repeat([]byte{1}, 1<<20))
		time.Sleep(100 * time.Microsecond)
	}
}

// down calls itself far deeper than a stack may be; what it adds afterwards keeps it
// from being a loop.
func down(n int) int {
	if n == math.MaxInt {
		return n
	}
	return down(n+1) + n
}

// TestCap: whoever takes more than the bound dies, soon and with the reason;
// whoever only throws much away lives.
func TestCap(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, dies := range map[string]bool{"slow": true, "late": true, "doubling": true, "giant": true, "recursion": true, "garbage": false, "panic": false} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), eater+"="+how)
			var out, words bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &words
			err := cmd.Run()
			exit := (*exec.ExitError)(nil)
			code := 0
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			if died := memcap.Died(code, words.Bytes()); died != dies {
				t.Errorf("%v: died of memory %t, want %t\n%s", err, died, dies, words.String())
			}
			if lived := strings.Contains(out.String(), "lived"); lived == (dies || how == "panic") {
				t.Errorf("lived %t", lived)
			}
			if most := rss(cmd.ProcessState); dies && most > bound+shadowed*192<<20 {
				t.Errorf("it had %d MiB at its most", most>>20)
			}
		})
	}
}

// TestIdle: a process that takes no memory is not woken by its bound.
func TestIdle(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), eater+"=idle")
	out, err := cmd.Output()
	var woken int
	if n, _ := fmt.Sscanf(string(out), "woken %d", &woken); err != nil || n != 1 || woken > 60 {
		t.Errorf("%q, %v", out, err)
	}
}

// TestDied believes words only with the runtime's own exit code.
func TestDied(t *testing.T) {
	fatal := []byte("fatal error: runtime: out of memory\n\ngoroutine 1")
	for _, c := range []struct {
		code   int
		stderr []byte
		want   bool
	}{{memcap.ExitCode, nil, true}, {2, fatal, true}, {2, []byte("panic: x"), false}, {1, fatal, false}, {0, fatal, false}, {-1, fatal, false}} {
		if got := memcap.Died(c.code, c.stderr); got != c.want {
			t.Errorf("Died(%d, %q) = %t", c.code, c.stderr, got)
		}
	}
}

// TestStop ends the watch.
func TestStop(t *testing.T) {
	called := make(chan struct{})
	stop := memcap.Cap(1<<40, func() { close(called) })
	stop()
	stop()
	select {
	case <-called:
		t.Error("it found more than a TiB")
	default:
	}
}
