package rap

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// body is that of a request, which is read when it is first asked for: some
// Authenticators want it, and strangers' bodies are not read otherwise.
type body struct {
	w     http.ResponseWriter
	r     *http.Request
	limit int
	asked bool
	text  []byte
	err   error
}

func (b *body) read() ([]byte, error) {
	if !b.asked {
		b.asked = true
		if b.text, b.err = readBody(b.w, b.r, b.limit); b.err == nil {
			_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{}) // else it would end a long migration
		}
	}
	return b.text, b.err
}

// bodyWait is how long a body may take.
const bodyWait = 30 * time.Second

// firstRoom is what a body gets before any of it has come: a length that somebody
// only claims must not cost more.
const firstRoom = 64 << 10

// readBody reads the body of a request, of at most limit bytes. Errors wrap
// [ErrTooLarge], [ErrMalformed] or, when too much is being read, belay.ErrTooMany. The
// connection's deadline stays set.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, r.ContentLength, limit)
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWait)) // not every connection has one
	from, room := r.Body, r.ContentLength+1                                     // one more, to see the end without growing
	if room <= 0 {                                                              // it will be seen how much there is
		from, room = http.MaxBytesReader(w, r.Body, int64(limit)), 512
	}
	of := reading
	if limit <= firstRoom { // cancels and closes: nobody repeats one that is refused (RAP-15)
		of = nil
	}
	body, err := readAll(from, int(min(room, firstRoom)), of)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, fmt.Errorf("%w: at most %d bytes are allowed", ErrTooLarge, limit)
	}
	if errors.Is(err, belay.ErrTooMany) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the body could not be read", ErrMalformed)
	}
	return body, nil
}

// readAll is io.ReadAll for whoever knows how much to expect. The budget has it back
// at the end: what comes after is done at once.
func readAll(r io.Reader, room int, of *budget) ([]byte, error) {
	if err := of.take(room); err != nil {
		return nil, err
	}
	b := make([]byte, 0, room)
	defer func() { of.give(cap(b)) }()
	for {
		if len(b) == cap(b) {
			if err := of.take(cap(b)); err != nil {
				return nil, err
			}
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// isJSON reports whether the body claims to be what it has to be (RAP-36).
func isJSON(r *http.Request) bool {
	claim := r.Header.Get("Content-Type")
	if claim == ContentType {
		return true
	}
	kind, params, err := mime.ParseMediaType(claim)
	charset := params["charset"]
	return err == nil && kind == ContentType && (charset == "" || strings.EqualFold(charset, "utf-8"))
}
