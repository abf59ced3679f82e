package tracing

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrConfig reports a variable whose value cannot be used.
var ErrConfig = errors.New("tracing is not set up right")

// Exporter is where spans go.
type Exporter string

// The exporters, by the values of OTEL_TRACES_EXPORTER.
const (
	ExportNone    Exporter = "none"
	ExportOTLP    Exporter = "otlp"
	ExportConsole Exporter = "console"
)

// Protocol is how spans are written for an OTLP receiver.
type Protocol string

// The protocols, by the values of OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	ProtocolProtobuf Protocol = "http/protobuf"
	ProtocolJSON     Protocol = "http/json"
)

// Config says what is traced and where it goes. Make one with [FromEnv]; the
// zero value is off.
type Config struct {
	Exporter    Exporter
	Endpoint    string // the full URL of an OTLP receiver, with its path
	Protocol    Protocol
	Headers     map[string]string // sent with each export; may hold secrets
	Gzip        bool
	Timeout     time.Duration // of one export
	Certificate string        // file of certificates in PEM that the receiver's must go back to; empty: the system's

	Service  string            // service.name
	Resource map[string]string // further attributes of the resource

	Sampler Sampler

	Delay time.Duration // how long a span waits for others at most
	Queue int           // spans that may wait
	Batch int           // spans in one export
}

// On reports whether spans are to be made at all.
func (c *Config) On() bool { return c.Exporter == ExportOTLP || c.Exporter == ExportConsole }

// FromEnv reads the standard OTEL_ variables. An empty one counts as not set.
// A value that is not supported is an error that wraps [ErrConfig] and names
// the variable; its value is named unless it may be a secret. With
// OTEL_SDK_DISABLED=true nothing else is looked at.
func FromEnv(get func(name string) string) (Config, error) {
	r := &reader{get: func(name string) string { return strings.TrimSpace(get(name)) }}
	c := Config{Exporter: ExportNone}
	if disabled := r.get("OTEL_SDK_DISABLED"); disabled != "" {
		switch strings.ToLower(disabled) {
		case "true":
			return c, nil
		case "false":
		default:
			return c, bad("OTEL_SDK_DISABLED", disabled, "true or false")
		}
	}
	c.Exporter = r.exporter()
	if !c.On() {
		return c, r.err
	}
	c.Service, c.Resource = r.resource()
	c.Sampler = r.sampler()
	c.Delay = r.millis("OTEL_BSP_SCHEDULE_DELAY", 5*time.Second)
	c.Queue = r.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1<<20)
	c.Batch = r.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1<<16)
	c.Batch = min(c.Batch, c.Queue)
	if c.Exporter == ExportOTLP {
		r.otlp(&c)
	}
	return c, r.err
}

// reader reads variables and keeps the first error.
type reader struct {
	get func(string) string
	err error
}

func bad(name, value, want string) error {
	return fmt.Errorf("%w: %s is %.100q; want %s", ErrConfig, name, value, want)
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// either is the value for traces, else that for all signals, with the name of
// the variable that it stands in.
func (r *reader) either(name string) (value, from string) {
	for _, from := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if v := r.get(from); v != "" {
			return v, from
		}
	}
	return "", ""
}

func (r *reader) exporter() Exporter {
	switch v := r.get("OTEL_TRACES_EXPORTER"); Exporter(v) {
	case ExportNone, ExportOTLP, ExportConsole:
		return Exporter(v)
	case "":
		if endpoint, _ := r.either("ENDPOINT"); endpoint != "" {
			return ExportOTLP
		}
	default:
		r.fail(bad("OTEL_TRACES_EXPORTER", v, "otlp, console or none (one of them)"))
	}
	return ExportNone
}

func (r *reader) otlp(c *Config) {
	c.Endpoint = r.endpoint()
	c.Protocol = ProtocolProtobuf
	if v, from := r.either("PROTOCOL"); v != "" {
		c.Protocol = Protocol(v)
		if c.Protocol != ProtocolProtobuf && c.Protocol != ProtocolJSON {
			r.fail(bad(from, v, "http/protobuf or http/json (gRPC is not built in; receivers take HTTP on port 4318)"))
		}
	}
	if v, from := r.either("COMPRESSION"); v != "" {
		c.Gzip = v == "gzip"
		if v != "gzip" && v != "none" {
			r.fail(bad(from, v, "gzip or none"))
		}
	}
	if v, from := r.either("HEADERS"); v != "" {
		var err error
		if c.Headers, err = pairs(v); err == nil {
			err = sendable(c.Headers)
		}
		if err != nil {
			r.fail(fmt.Errorf("%w: %s: %w; want name=value,name=value", ErrConfig, from, err))
		}
	}
	for _, name := range []string{"CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		if v, from := r.either(name); v != "" {
			r.fail(bad(from, v, "nothing: client certificates are not supported; use headers"))
		}
	}
	c.Certificate, _ = r.either("CERTIFICATE")
	_, from := r.either("TIMEOUT")
	c.Timeout = r.millis(from, 10*time.Second)
}

// endpoint is where spans are posted to: the variable for traces as it is, that
// for all signals with the path of traces below its own.
func (r *reader) endpoint() string {
	if v := r.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); v != "" {
		r.url("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", v)
		return v
	}
	v := r.get("OTEL_EXPORTER_OTLP_ENDPOINT")
	if v == "" {
		return "http://localhost:4318/v1/traces"
	}
	u := r.url("OTEL_EXPORTER_OTLP_ENDPOINT", v)
	if u == nil {
		return ""
	}
	return u.JoinPath("v1", "traces").String()
}

func (r *reader) url(name, value string) *url.URL {
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		r.fail(fmt.Errorf("%w: %s is not a URL that begins with http:// or https:// and names a host", ErrConfig, name))
		return nil
	}
	return u
}

func (r *reader) resource() (service string, all map[string]string) {
	all, err := pairs(r.get("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		r.fail(fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w; want name=value,name=value", ErrConfig, err))
	}
	service = r.get("OTEL_SERVICE_NAME")
	if service == "" {
		service = all["service.name"]
	}
	if service == "" {
		service = "belay"
	}
	delete(all, "service.name")
	return service, all
}

func (r *reader) sampler() Sampler {
	const name, arg = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	s := Sampler{Parent: true, Ratio: 1}
	v := r.get(name)
	kind, parent := strings.CutPrefix(v, "parentbased_")
	if v != "" {
		s.Parent = parent
	}
	switch kind {
	case "always_on":
	case "":
		if v != "" {
			r.fail(bad(name, v, "always_on, always_off, traceidratio or parentbased_ and one of these"))
		}
	case "always_off":
		s.Ratio = 0
	case "traceidratio":
		text := r.get(arg)
		if text == "" {
			break // all, as the specification has it
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(ratio) || ratio < 0 || ratio > 1 {
			r.fail(bad(arg, text, "a number from 0 to 1"))
			break
		}
		s.Ratio = ratio
	default:
		r.fail(bad(name, v, "always_on, always_off, traceidratio or parentbased_ and one of these"))
	}
	return s
}

func (r *reader) millis(name string, otherwise time.Duration) time.Duration {
	if name == "" {
		return otherwise
	}
	return time.Duration(r.number(name, int(otherwise/time.Millisecond), 1<<31-1)) * time.Millisecond
}

func (r *reader) number(name string, otherwise, limit int) int {
	v := r.get(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > limit {
		r.fail(bad(name, v, fmt.Sprintf("a whole number from 1 to %d", limit)))
		return otherwise
	}
	return n
}

// pairs reads name=value,name=value with values that may be percent-encoded. Its
// errors do not name values, which may be secrets.
func pairs(text string) (map[string]string, error) {
	all := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return all, errors.New("a part of it has no name or no =")
		}
		decoded, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil {
			return all, fmt.Errorf("the value of %.64q is not percent-encoded right", name)
		}
		all[name] = decoded
	}
	return all, nil
}

// sendable reports headers that HTTP does not allow.
func sendable(headers map[string]string) error {
	for name, value := range headers {
		for i := range len(name) {
			c := name[i]
			if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
				return fmt.Errorf("%.64q is not the name of a header", name)
			}
		}
		for i := range len(value) {
			if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
				return fmt.Errorf("the value of %.64q has a control character", name)
			}
		}
	}
	return nil
}
