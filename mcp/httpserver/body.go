package httpserver

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/belayhq/belay/mcp"
)

// intake is one POST's body and what was read in it. Intakes are used again:
// nothing may keep a reference into one behind [intake.release].
type intake struct {
	body []byte
	m    mcp.Message
	err  error // of reading m
}

// keepBody is the largest buffer that an idle intake holds on to.
const keepBody = 64 << 10

var intakes = sync.Pool{New: func() any { return &intake{body: make([]byte, 0, 4<<10)} }}

func (in *intake) release() {
	if cap(in.body) > keepBody {
		return
	}
	in.body, in.m, in.err = in.body[:0], mcp.Message{}, nil
	intakes.Put(in)
}

// errBodyTooLong says that a body is over the bound.
var errBodyTooLong = errors.New("the body is too long")

// readBody reads the whole body into an intake, bounded in size and time: a
// caller that stops in the middle must not hold an exchange for ever. After a
// failure the connection is not used again.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) (*intake, *failure) {
	rc := http.NewResponseController(w)
	if r.ContentLength > int64(h.cfg.MaxBody) {
		return nil, h.unread(w, rc, h.tooLong())
	}
	// The deadline must be gone before the exchange goes on: the connection is
	// read in the background then, to see a disconnect.
	_ = rc.SetReadDeadline(time.Now().Add(h.cfg.BodyWait)) // no deadline behind a writer that has none
	in := intakes.Get().(*intake)                          //nolint:forcetypeassert // the pool makes no other
	body, err := readAll(in.body[:0], r.Body, int(r.ContentLength), h.cfg.MaxBody)
	in.body = body
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{})
		return in, nil
	}
	f := h.tooLong()
	if !errors.Is(err, errBodyTooLong) {
		f = fail(http.StatusBadRequest, codeParse, noID, "the body ended after %d bytes: %v", len(body), err)
	}
	in.release()
	return nil, h.unread(w, rc, f)
}

// drainWait is how long net/http may go on reading a body that was refused, so
// that a client which is still sending sees the answer and no reset.
const drainWait = time.Second

// unread prepares the answer to a request whose body was not read to its end.
func (h *Handler) unread(w http.ResponseWriter, rc *http.ResponseController, f *failure) *failure {
	w.Header().Set("Connection", "close")
	_ = rc.SetReadDeadline(time.Now().Add(drainWait))
	return f
}

// turnAway refuses a request whose body nobody has looked at. net/http reads
// some of that body before it answers, for which there has to be a limit.
func turnAway(w http.ResponseWriter, f *failure) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainWait))
	refuse(w, f)
}

func (h *Handler) tooLong() *failure {
	return fail(http.StatusRequestEntityTooLarge, codeInvalidRequest, noID, "the body is longer than %d bytes", h.cfg.MaxBody)
}

// readAll appends all of src to dst. length is what was announced, negative
// when nothing was.
func readAll(dst []byte, src io.Reader, length, limit int) ([]byte, error) {
	if length >= 0 {
		if cap(dst) < length {
			// Bytes that were announced are not here yet: grow as they come.
			dst = make([]byte, 0, min(length, 1<<20))
		}
		for len(dst) < length {
			dst = grow(dst, length)
			n, err := src.Read(dst[len(dst):min(cap(dst), length)])
			dst = dst[:len(dst)+n]
			if err == io.EOF && len(dst) < length {
				return dst, io.ErrUnexpectedEOF
			}
			if err != nil && err != io.EOF {
				return dst, err
			}
		}
		return dst, nil
	}
	for {
		dst = grow(dst, limit+1)
		n, err := src.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > limit:
			return dst, errBodyTooLong
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// grow makes room for at least one more byte.
func grow(dst []byte, most int) []byte {
	if len(dst) < cap(dst) {
		return dst
	}
	bigger := make([]byte, len(dst), max(min(2*cap(dst), most), len(dst)+512))
	copy(bigger, dst)
	return bigger
}
