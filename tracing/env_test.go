package tracing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

func fromMap(vars map[string]string) (Config, error) {
	return FromEnv(func(name string) string { return vars[name] })
}

// Nothing is traced unless somebody says where to, and the standard says how.
func TestFromEnv(t *testing.T) {
	for _, c := range []struct {
		about string
		vars  map[string]string
		ok    func(Config) bool
	}{
		{"nothing is set", nil, func(c Config) bool { return !c.On() }},
		{"only how is set", map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "nonsense"}, func(c Config) bool { return !c.On() }},
		{"empty is not set", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, func(c Config) bool { return !c.On() }},
		{"an endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/base/"}, func(c Config) bool {
			return c.Exporter == ExportOTLP && c.Endpoint == "http://c:4318/base/v1/traces" && c.Protocol == ProtocolProtobuf &&
				c.Service == "belay" && c.Timeout == 10*time.Second && c.Sampler == Sampler{Parent: true, Ratio: 1} && c.Queue == 2048 && c.Batch == 512 && c.Delay == 5*time.Second
		}},
		{"an endpoint of traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, func(c Config) bool { return c.Endpoint == "https://c/x" }},
		{"an exporter", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, func(c Config) bool { return c.Endpoint == "http://localhost:4318/v1/traces" }},
		{"none goes before an endpoint", map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, func(c Config) bool { return !c.On() }},
		{"disabled goes before all", map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "jaeger"}, func(c Config) bool { return !c.On() }},
		{"resource", map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_RESOURCE_ATTRIBUTES": "service.name=a,deployment.environment=b%2Cc"}, func(c Config) bool {
			return c.Service == "a" && c.Resource["deployment.environment"] == "b,c" && len(c.Resource) == 1
		}},
		{"ratio", map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, func(c Config) bool { return c.Sampler == Sampler{Ratio: 0.25} }},
		{"off", map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_always_off"}, func(c Config) bool { return c.Sampler == Sampler{Parent: true} }},
		{"time-out and headers of traces", map[string]string{
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "2500",
			"OTEL_EXPORTER_OTLP_HEADERS": "a=b", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Bearer%20x",
		}, func(c Config) bool {
			return c.Timeout == 2500*time.Millisecond && len(c.Headers) == 1 && c.Headers["authorization"] == "Bearer x"
		}},
	} {
		got, err := fromMap(c.vars)
		if err != nil || !c.ok(got) {
			t.Errorf("%s: %+v, %v", c.about, got, err)
		}
	}
}

// A value that is not supported is an error that names the variable, never
// silence; what may be a secret is not in it.
func TestFromEnvRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER":               "zipkin",
		"OTEL_SDK_DISABLED":                  "yes",
		"OTEL_EXPORTER_OTLP_PROTOCOL":        "grpc",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http",
		"OTEL_EXPORTER_OTLP_ENDPOINT":        "collector:4317",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "secret://c",
		"OTEL_EXPORTER_OTLP_COMPRESSION":     "zstd",
		"OTEL_EXPORTER_OTLP_TIMEOUT":         "10s",
		"OTEL_EXPORTER_OTLP_HEADERS":         "secret",
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":  "a=secret%zz",
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":      "/key.pem",
		"OTEL_RESOURCE_ATTRIBUTES":           "=x",
		"OTEL_TRACES_SAMPLER":                "jaeger_remote",
		"OTEL_BSP_MAX_QUEUE_SIZE":            "0",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE":     "-1",
		"OTEL_BSP_SCHEDULE_DELAY":            "99999999999999999999",
	} {
		vars := map[string]string{"OTEL_TRACES_EXPORTER": "otlp", name: value}
		_, err := fromMap(vars)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for _, arg := range []string{"2", "-1", "NaN", "x"} {
		if _, err := fromMap(map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": arg}); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if _, err := fromMap(map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_HEADERS": "a=b%0d%0ac: d"}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// A missing file of certificates is an error at the start.
func TestCertificate(t *testing.T) {
	c, err := fromMap(map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_CERTIFICATE": t.TempDir() + "/none.pem"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Control: newTree(t), Config: c}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// A caller's decision goes before ours, and a share of the traces is that share.
func TestSampler(t *testing.T) {
	foreign := &place{foreign: true, unsampled: true}
	if s := (Sampler{Parent: true, Ratio: 1}); s.keeps(foreign) {
		t.Error("what the caller does not sample was kept")
	}
	if s := (Sampler{Ratio: 1}); !s.keeps(foreign) {
		t.Error("always_on did not keep it")
	}
	if s := (Sampler{Parent: true}); s.keeps(&place{}) || !s.keeps(&place{foreign: true}) {
		t.Error("parentbased_always_off")
	}
	s, kept := Sampler{Ratio: 0.25}, 0
	for range 4000 {
		if s.keeps(&place{trace: TraceID(belay.NewRunID())}) {
			kept++
		}
	}
	if kept < 850 || kept > 1150 {
		t.Errorf("%d of 4000", kept)
	}
}

// Labels that are no ids are none.
func TestLabelled(t *testing.T) {
	for trace, ok := range map[string]bool{
		callersTrace: true, "": false, strings.Repeat("0", 32): false, callersTrace[1:]: false, callersTrace + "00": false, strings.Repeat("x", 32): false,
	} {
		if _, got := labelled(map[string]string{LabelTrace: trace}); got != ok {
			t.Errorf("%q: %v", trace, got)
		}
	}
	p, _ := labelled(map[string]string{LabelTrace: callersTrace, LabelParent: "b7ad6b716920333x", LabelFlags: "00"})
	if p.foreign || p.parent != [8]byte{} || !p.unsampled {
		t.Errorf("%+v", p)
	}
}
