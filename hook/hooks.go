package hook

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// DefaultTimeout is how long an action may take when its Timeout is zero.
const DefaultTimeout = 10 * time.Second

// The errors that callers tell apart.
var (
	ErrConfig = errors.New("bad stop hook")           // the configuration is wrong: Hooks.Validate
	ErrFill   = errors.New("stop hook was not run")   // a value for a placeholder is missing or does not fit
	ErrFailed = errors.New("stop hook failed")        // it ran and did not do what was expected
	ErrTime   = errors.New("stop hook took too long") // it was killed at its timeout
)

// Hooks say how to stop the work of one server or tool. Each may be nil. They
// must not change once they are in use.
type Hooks struct {
	Tell      *Action // asks politely, beside the protocol's own cancel
	Terminate *Action // asks by force, after the grace period
	Kill      *Action // ends the work
	Alive     *Action // says whether the work is still there: the evidence
}

// Action is one command or one HTTP request; exactly one is required.
type Action struct {
	// Command is the program and its arguments. Each may hold placeholders,
	// but for the program. No shell is involved.
	Command []string
	// Dir is the command's working directory; "" means Belay's own.
	Dir string

	HTTP *HTTP

	// Timeout bounds the action from its start; 0 means DefaultTimeout.
	Timeout time.Duration

	// Yes and No say, for alive, what means that the work is alive, and what
	// that it is gone: exit codes of a command, by default 0 and 1, or statuses
	// of a response, by default 200, and 404 and 410. Anything else means that
	// it is not known. Setting one of them leaves the other's default.
	//
	// For other actions Yes says what means success; by default exit code 0,
	// or any status from 200 to 299.
	Yes, No []int
}

// HTTP is one request.
type HTTP struct {
	Method string // "" means POST, for alive GET
	URL    string // http or https; placeholders behind the host only
	Header []Header
	Body   string
	// Socket is the path of a unix socket to connect to instead of the URL's
	// host, as container daemons have one; "" means none.
	Socket string
}

// Header is one header of a request; Value may hold placeholders.
type Header struct{ Name, Value string }

// Validate reports what is wrong with the hooks, as errors that wrap ErrConfig.
// A nil Hooks is valid.
func (h *Hooks) Validate() error {
	if h == nil {
		return nil
	}
	var errs []error
	for _, s := range []Step{Tell, Terminate, Kill, Alive} {
		if a := h.action(s); a != nil {
			if err := a.validate(s); err != nil {
				errs = append(errs, fmt.Errorf("%w: %s: %w", ErrConfig, s, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Step names one of the four actions.
type Step string

// The steps.
const (
	Tell      Step = "tell"
	Terminate Step = "terminate"
	Kill      Step = "kill"
	Alive     Step = "alive"
)

func (h *Hooks) action(s Step) *Action {
	switch s {
	case Tell:
		return h.Tell
	case Terminate:
		return h.Terminate
	case Kill:
		return h.Kill
	case Alive:
		return h.Alive
	}
	return nil
}

func (a *Action) validate(s Step) error {
	switch {
	case (len(a.Command) == 0) == (a.HTTP == nil):
		return errors.New("exactly one of a command and an HTTP request is needed")
	case a.Timeout < 0:
		return fmt.Errorf("timeout %s is negative", a.Timeout)
	case s != Alive && len(a.No) > 0:
		return errors.New("only alive can say no")
	}
	for _, code := range a.Yes {
		if slices.Contains(a.No, code) {
			return fmt.Errorf("%d means both yes and no", code)
		}
	}
	if a.HTTP != nil {
		return a.HTTP.validate(s)
	}
	return a.validateCommand()
}

func (a *Action) validateCommand() error {
	for i, text := range a.Command {
		parts, err := parse(text)
		switch {
		case err != nil:
			return err
		case strings.ContainsRune(text, 0):
			return fmt.Errorf("argument %q contains a NUL byte", text)
		case i == 0 && (text == "" || !plain(parts)):
			return fmt.Errorf("the program must be fixed, %q is not", text)
		}
	}
	return nil
}

func (h *HTTP) validate(s Step) error {
	if m := h.method(s); strings.ContainsFunc(m, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		return fmt.Errorf("method %q is not made of capital letters", m)
	}
	front, _, err := h.split()
	if err != nil {
		return err
	}
	u, err := url.Parse(front)
	switch {
	case err != nil:
		return fmt.Errorf("URL %q: %w", h.URL, err)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("URL %q must begin with http:// or https://", h.URL)
	case u.Host == "":
		return fmt.Errorf("URL %q has no host", h.URL)
	case strings.Contains(h.URL, "#"):
		return fmt.Errorf("URL %q has a fragment, which is never sent", h.URL)
	}
	for _, header := range h.Header {
		if !token(header.Name) {
			return fmt.Errorf("header name %q is not possible", header.Name)
		}
		if slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection"}, http.CanonicalHeaderKey(header.Name)) {
			return fmt.Errorf("header %s is set by Belay itself", header.Name)
		}
		if _, err := parse(header.Value); err != nil {
			return err
		}
	}
	_, err = parse(h.Body)
	return err
}

// split cuts the URL behind its host: the front has no placeholders.
func (h *HTTP) split() (front string, rest []part, err error) {
	at := strings.Index(h.URL, "://")
	if at < 0 {
		return "", nil, fmt.Errorf("URL %q must begin with http:// or https://", h.URL)
	}
	at += len("://")
	if end := strings.IndexAny(h.URL[at:], "/?"); end >= 0 {
		at += end
	} else {
		at = len(h.URL)
	}
	front = h.URL[:at]
	parts, err := parse(front)
	if err != nil {
		return "", nil, err
	}
	if !plain(parts) {
		return "", nil, fmt.Errorf("URL %q has a placeholder in its host", h.URL)
	}
	rest, err = parse(h.URL[at:])
	return front, rest, err
}

func (h *HTTP) method(s Step) string {
	switch {
	case h.Method != "":
		return h.Method
	case s == Alive:
		return http.MethodGet
	}
	return http.MethodPost
}

// token reports whether s may be the name of a header.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// name names the action in logs, errors and evidence: by its template as far
// as redact lets it, by its program or host if there is no redact.
func (a *Action) name(redact func(string) string) string {
	text := strings.Join(a.Command, " ")
	if h := a.HTTP; h != nil {
		text = strings.TrimSpace(h.Method + " " + h.URL)
	}
	switch {
	case redact != nil:
		return redact(text)
	case a.HTTP == nil:
		return a.Command[0]
	}
	front, _, _ := a.HTTP.split()
	if u, err := url.Parse(front); err == nil && u.Host != "" {
		return u.Host
	}
	return "an HTTP request"
}

func (a *Action) timeout() time.Duration {
	if a.Timeout <= 0 {
		return DefaultTimeout
	}
	return a.Timeout
}
