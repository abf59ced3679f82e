package faketool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePort finds a port of 127.0.0.1 for a server that has to be told one, or that
// must come back at the same. It lies below those that kernels give to whoever asks
// for any: between the look and the start, or while the server restarts, nobody who
// connects somewhere or listens on port 0 takes it.
func FreePort() (int, error) {
	const first, count = 20000, 10000 // given out are 32768-60999 by Linux, from 49152 on by the others
	var why error
	for range 20 {
		port := first + rand.N(count)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		why = errors.Join(why, err)
	}
	return 0, fmt.Errorf("no free port: %w", why)
}
