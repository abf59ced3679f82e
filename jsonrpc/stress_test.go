package jsonrpc

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
)

// sealed makes a line that shows if it was torn or mixed with another.
func sealed(sender, n int, kind string, size int) string {
	head := fmt.Sprintf("%d %d %s %s", sender, n, kind, strings.Repeat("p", size))
	return fmt.Sprintf("%s %08x", head, crc32.ChecksumIEEE([]byte(head)))
}

func unseal(t *testing.T, line string) (sender, n int, kind string) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(line[:i]))) != line[i+1:] {
		t.Fatalf("torn line %.80q", line)
	}
	if _, err := fmt.Sscanf(line, "%d %d %s", &sender, &n, &kind); err != nil {
		t.Fatal(err)
	}
	return sender, n, kind
}

// Many senders, a pipe that blocks again and again, cancels and withdrawals: no
// line is torn, lost, doubled, or sent although it was withdrawn; each sender's
// requests keep their order, and no cancel comes before its request.
func TestWriterStress(t *testing.T) {
	const senders, each = 8, 400
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(wr, WriterOptions{})
	var mu sync.Mutex
	expect := map[string]bool{}
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(s), 7))
			for n := range each {
				line := sealed(s, n, "request", rng.IntN(1+rng.IntN(40_000)))
				var seq uint64
				var err error
				if n%2 == 0 {
					seq, err = w.SendFrame([]byte(line))
				} else {
					seq, err = w.Send(text(line))
				}
				if err != nil {
					t.Error(err)
					return
				}
				sent := true
				cancel := ""
				switch rng.IntN(4) {
				case 0:
					sent = !w.Withdraw(seq)
				case 1:
					cancel = sealed(s, n, "cancel", rng.IntN(50))
					if _, err := w.SendUrgent(seq, text(cancel)); err != nil {
						t.Error(err)
					}
				case 2:
					if err := w.Wait(t.Context(), seq); err != nil || w.Withdraw(seq) {
						t.Error("written, waited for, and withdrawn", err)
					}
				}
				mu.Lock()
				expect[line] = sent
				if cancel != "" {
					expect[cancel] = true
				}
				mu.Unlock()
			}
		})
	}
	closed := make(chan error, 1)
	go func() {
		wg.Wait()
		closed <- w.Close(t.Context())
	}()
	last := [senders]int{}
	seen := map[string]bool{}
	rd := NewReader(r, ReaderOptions{})
	for {
		got, err := rd.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		line := string(got)
		sender, n, kind := unseal(t, line)
		if seen[line] {
			t.Errorf("%.40q came twice", line)
		}
		seen[line] = true
		switch {
		case kind == "request" && n < last[sender]:
			t.Errorf("request %d of sender %d after %d", n, sender, last[sender])
		case kind == "request":
			last[sender] = n
		case last[sender] < n:
			t.Errorf("cancel %d of sender %d before its request", n, sender)
		}
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	r.Close()
	for line, sent := range expect {
		if seen[line] != sent {
			t.Errorf("%.40q: sent %v, arrived %v", line, sent, seen[line])
		}
	}
	if len(expect) < senders*each {
		t.Errorf("%d lines", len(expect))
	}
}

// Close, CloseNow and senders from many goroutines, also when the pipe breaks:
// everybody returns, and the goroutine is gone (the package's leak check).
func TestWriterEndsFromAnywhere(t *testing.T) {
	for round := range 60 {
		r, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(wr, WriterOptions{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					seq, err := w.Send(text("line"))
					if err != nil {
						if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrQueueFull) && !errors.Is(err, os.ErrClosed) && round%3 != 2 {
							t.Error(err)
						}
						if errors.Is(err, ErrQueueFull) {
							continue
						}
						return
					}
					if seq%7 == 0 {
						w.Withdraw(seq)
					}
					if seq%50 == 0 {
						_ = w.Wait(soon(t), seq)
					}
				}
			})
		}
		if round%2 == 0 {
			wg.Go(func() { io.Copy(io.Discard, r) })
		}
		for range 2 {
			wg.Go(func() {
				switch round % 3 {
				case 0:
					_ = w.CloseNow()
				case 1:
					if round%2 == 0 {
						_ = w.Close(soon(t))
					} else {
						_ = w.CloseNow()
					}
				case 2:
					if round%2 != 0 {
						r.Close()
					} else {
						wr.Close()
					}
				}
			})
		}
		<-w.Done()
		wr.Close()
		wg.Wait()
		r.Close()
		if err := w.CloseNow(); err != nil {
			t.Error(err)
		}
	}
}
