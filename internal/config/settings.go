package config

import (
	"reflect"
	"time"
)

// Settings are the parts of belay.yaml that are neither a server nor a policy.
// They are complete: what the file does not say has its default. Files named in
// them are absolute. Compare two with [Config.Restart] and [Auth.Equal].
type Settings struct {
	TLS       TLS      `key:"tls"`
	Hosts     []string `key:"hosts"`   // values of the Host header that are served beside loopback's names
	Origins   []string `key:"origins"` // values of the Origin header that are served beside those of loopback
	LogFormat string   `key:"log_format" default:"text" enum:"text,json"`

	Auth         Auth         `key:"auth"`
	Orchestrate  Orchestrate  `key:"orchestrate"`
	Cancellation Cancellation `key:"cancellation"`
	Ledger       Ledger       `key:"ledger"`
	Metrics      Metrics      `key:"metrics"`
	Traces       Traces       `key:"traces"`
	Latch        Latch        `key:"latch"`
	Leases       Leases       `key:"leases"`
	RAP          RAP          `key:"rap"`
}

// TLS says how connections are encrypted; the zero value: they are not. The
// files could be read and fit each other when the configuration was loaded.
type TLS struct {
	Cert     string `key:"cert" path:"file"`      // PEM: the certificate, and those between it and its authority
	Key      string `key:"key" path:"file"`       // PEM
	ClientCA string `key:"client_ca" path:"file"` // PEM: who vouches for clients' certificates; empty: none are asked for
}

// On reports whether connections are encrypted.
func (t TLS) On() bool { return t.Cert != "" }

// Orchestrate is the seed's family of endpoints (ORC-35, 36, 44, 52, 65).
type Orchestrate struct {
	Enabled     bool        `key:"enabled" default:"true"`
	Permissions Permissions `key:"permissions" default:"admin.system_config"` // that open it
	Rate        float64     `key:"rate" default:"20" above:"0"`               // cancels and questions, for a second and a principal
	Burst       int         `key:"burst" default:"40" min:"1"`
	Broadcast   string      `key:"broadcast" default:"owner" enum:"owner,all,off"`
	ExposeOwner bool        `key:"expose_owner" default:"false"`
}

// Cancellation switches everything off that stops something (ORC-64).
type Cancellation struct {
	// Enabled is what the environment says, if it says something: see [EnvCancellation].
	Enabled bool `key:"enabled" default:"true"`
}

// Ledger says what is kept of ended runs.
type Ledger struct {
	Enabled bool   `key:"enabled" default:"true"`
	Path    string `key:"path" path:"file"` // empty: [StateDir]'s ledger.db

	// How much is kept; 0: no bound.
	Keep      time.Duration            `key:"keep" default:"168h" min:"0s"`
	KeepOf    map[string]time.Duration `key:"keep_of"` // Keep of some principals, by name
	KeepRuns  int                      `key:"keep_runs" default:"1000000" min:"0"`
	KeepBytes Size                     `key:"keep_bytes" default:"1GiB" min:"0"`

	Partials bool `key:"partials" default:"false"` // what stopped tools had so far
	Commands bool `key:"commands" default:"false"` // command lines of survivors and of processes that were spared
}

// Metrics are those of /metrics.
type Metrics struct {
	Enabled bool `key:"enabled" default:"true"`
	Public  bool `key:"public" default:"false"` // without authentication
}

// Traces are OpenTelemetry's. Where they go is said by the variables of its
// specification; without any of them there are none.
type Traces struct {
	Enabled bool `key:"enabled" default:"true"`
}

// Latch is the stop-all latch.
type Latch struct {
	File string `key:"file" path:"file"` // where it outlives a restart; empty: latch.json beside the ledger
}

// Leases are runs that other runtimes register.
type Leases struct {
	Enabled bool `key:"enabled" default:"true"`
	// Webhooks says where a cancel may be posted: "public" to addresses of the
	// internet, "local" also to this machine, "private" also to its networks, in
	// plain HTTP too, "off" nowhere. "auto" is never what Load returns: it becomes "local" where
	// nobody is in auth, so that all who register are this user, else "public".
	Webhooks string `key:"webhooks" default:"auto" enum:"auto,public,local,private,off"`
}

// Restart names the keys that differ between two configurations and whose
// change takes a restart of belay serve (ORC-66). Servers, policies and auth
// are not among them.
func (c *Config) Restart(next *Config) []string {
	var keys []string
	if c.Listen != next.Listen {
		keys = append(keys, "listen")
	}
	a, b := reflect.ValueOf(c.Settings), reflect.ValueOf(next.Settings)
	for i := range a.NumField() {
		key := a.Type().Field(i).Tag.Get("key")
		if key != "auth" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			keys = append(keys, key)
		}
	}
	return keys
}
