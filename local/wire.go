package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// protocolVersion is raised when an old reader could misunderstand a new
// writer. Unknown members are ignored, so that adding one needs no new version.
const protocolVersion = 1

// Bounds of the protocol.
const (
	maxHello   = 64 << 10
	maxRequest = 4 << 20 // bytes of a request line: some 100,000 run ids
	maxAnswer  = 4 << 20 // bytes of an answer line
	maxSaid    = 8 << 10 // bytes of a line of an attached child
	maxBatch   = 24      // runs in one answer line: with its labels each takes up to 90 KB of JSON
	maxAsked   = 16      // questions in one: with its run each takes up to 160 KB of JSON

	requestTime = 5 * time.Second // for the client to send its request
	writeTime   = 5 * time.Second // for the other end to take one line
	beatEvery   = time.Second     // how often a server shows that it lives
	silentFor   = 5 * time.Second // how long a client believes a silent server
)

// hello is the first line of a connection, sent by the server.
type hello struct {
	Belay   int       `json:"belay"` // protocolVersion
	Pid     int       `json:"pid"`
	Started time.Time `json:"started"`
	Version string    `json:"version,omitempty"` // of the program
	Command []string  `json:"command,omitempty"` // the Belay process's own command line, bounded
	Fronts  string    `json:"fronts,omitempty"`  // what it stands in front of
	Error   *fault    `json:"error,omitempty"`   // instead of service
}

// The operations.
const (
	opHello  = "hello" // nothing but the greeting
	opList   = "list"
	opGet    = "get"
	opCancel = "cancel"
	opWatch  = "watch"
	opAttach = "attach"

	opApprovals = "approvals"
	opDecide    = "decide"
	opPreview   = "preview"
)

// request is the one line that a client sends.
type request struct {
	Op     string               `json:"op"`
	Filter belay.Filter         `json:"filter,omitzero"` // list, watch
	Run    belay.RunID          `json:"run,omitzero"`    // get
	Cancel *belay.CancelRequest `json:"cancel,omitempty"`
	Ticket string               `json:"ticket,omitempty"` // attach

	Approval belay.ApprovalID `json:"approval,omitzero"`  // decide, preview
	Decision *belay.Decision  `json:"decision,omitempty"` // decide
}

// answer is one line of an answer; exactly one member is set.
type answer struct {
	Runs     []belay.Info         `json:"runs,omitempty"`
	Detail   *belay.Detail        `json:"detail,omitempty"`
	Result   *belay.CancelResult  `json:"result,omitempty"`   // may come again for the same run
	Event    *belay.Event         `json:"event,omitempty"`    // watch
	Attached *attached            `json:"attached,omitempty"` // attach: the ticket was good
	Stop     *belay.CancelRequest `json:"stop,omitempty"`     // attach: stop everything, or what hangs below a run
	Placed   *placed              `json:"placed,omitempty"`   // attach: what the child asked

	Approvals []belay.Approval `json:"approvals,omitempty"` // approvals; decide: the one
	Preview   *string          `json:"preview,omitempty"`
	Error     *fault           `json:"error,omitempty"` // may be followed by done
	Beat      bool             `json:"beat,omitempty"`
	Done      bool             `json:"done,omitempty"` // the last line
}

// attached says where a child hangs: the run, then the runs above it.
type attached struct {
	Runs   []belay.RunID `json:"runs"`
	Places bool          `json:"places,omitempty"` // the child may ask where a call hangs
}

// said is a line of an attached child.
type said struct {
	Where *where `json:"where,omitempty"`
}

// where asks below which run a call hangs.
type where struct {
	Seq uint64 `json:"seq"`
	Asked
}

// placed answers it.
type placed struct {
	Seq  uint64              `json:"seq"`
	Run  belay.RunID         `json:"run"`
	Stop *belay.Cancellation `json:"stop,omitempty"` // it is stopped already
}

// fault is an error on the wire.
type fault struct {
	Code    belay.Code `json:"code"`
	Message string     `json:"message"`
}

func faultOf(err error) *fault { return &fault{Code: belay.CodeOf(err), Message: err.Error()} }

// remoteError is an error of the other end; errors.Is sees its class.
type remoteError struct {
	message string
	class   error
}

func (f *fault) err() error {
	return &remoteError{message: belay.CleanReason(f.Message), class: belay.ErrorOf(f.Code)}
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.class }

var errTooLong = errors.New("line is too long")

// wire sends and receives lines over one connection. One goroutine may read;
// any may write.
type wire struct {
	conn *net.UnixConn
	in   *bufio.Reader
	mu   sync.Mutex // for writing
}

func newWire(c *net.UnixConn) *wire { return &wire{conn: c, in: bufio.NewReader(c)} }

// send writes one line, within writeTime.
func (w *wire) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%w: cannot be sent: %w", belay.ErrBadRequest, err)
	}
	if len(line) > maxAnswer {
		return fmt.Errorf("%w: %d bytes in one message, at most %d are possible", belay.ErrBadRequest, len(line), maxAnswer)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = w.conn.Write(append(line, '\n'))
	return err
}

// receive reads one line into v, within the time (0: without one). A line over
// the bound is errTooLong; the connection is then of no further use.
func (w *wire) receive(v any, limit int, within time.Duration) error {
	var deadline time.Time
	if within > 0 {
		deadline = time.Now().Add(within)
	}
	_ = w.conn.SetReadDeadline(deadline)
	line, err := readLine(w.in, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%w: not a line of the local protocol: %.80q", belay.ErrBadRequest, line)
	}
	return nil
}

func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("%w: %w (over %d bytes)", belay.ErrBadRequest, errTooLong, limit)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
