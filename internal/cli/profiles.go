package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/wholefile"
	"github.com/belayhq/belay/local"
)

// profile is one server under a name.
type profile struct {
	Server    string `json:"server"`
	Token     string `json:"token,omitempty"`      // stored here
	TokenFile string `json:"token_file,omitempty"` // read there each time
	tlsFiles
}

// tlsFiles are the files of a connection over TLS.
type tlsFiles struct {
	CA   string `json:"ca,omitempty"`   // whom to trust; empty: the system's roots
	Cert string `json:"cert,omitempty"` // the client's certificate
	Key  string `json:"key,omitempty"`
}

// profiles is the file with them.
type profiles struct {
	Use      string              `json:"use,omitempty"` // the one that is used when nothing else is said
	Profiles map[string]*profile `json:"profiles"`
}

const maxProfiles = 1 << 20 // bytes of the file

// profilesPath is the file in Belay's folder of the user's configuration, where
// the local token lies too unless it was put elsewhere.
func (e *Env) profilesPath() string {
	getenv := func(name string) string {
		if name == auth.EnvTokenFile || name == config.EnvStateDir {
			return "" // places of what servers keep; this is the user's own setting
		}
		return e.Getenv(name)
	}
	return filepath.Join(filepath.Dir(auth.LocalTokenPath(getenv, local.Dir(e.Getenv))), "profiles.json")
}

// loadProfiles reads the file; none is no profiles. A file with tokens in it
// that others can read is an error that says what to do.
func (e *Env) loadProfiles() (*profiles, error) {
	path := e.profilesPath()
	all := &profiles{Profiles: map[string]*profile{}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return all, nil
	}
	switch {
	case err != nil:
		return nil, exitErrorf(ExitFailed, "profiles: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxProfiles:
		return nil, exitErrorf(ExitFailed, "profiles: %s is no file with profiles", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, exitErrorf(ExitFailed, "profiles: others have access to %s (mode %04o); it may hold tokens: chmod 600 it", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, exitErrorf(ExitFailed, "profiles: %w", err)
	}
	if err := json.Unmarshal(text, all); err != nil {
		return nil, exitErrorf(ExitFailed, "profiles: %s cannot be read (%w); mend or remove it", path, err)
	}
	if all.Profiles == nil {
		all.Profiles = map[string]*profile{}
	}
	return all, nil
}

// saveProfiles writes the file anew, so that a reader never sees half of it.
func (e *Env) saveProfiles(all *profiles) error {
	path := e.profilesPath()
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = wholefile.Write(path, append(text, '\n'))
	}
	if err != nil && !errors.Is(err, wholefile.ErrNotDurable) {
		return exitErrorf(ExitFailed, "profiles: %w", err)
	}
	return nil
}

// profile is the one with a name, or without one the one in use; nil: none, and
// the runs are those of this user's own processes.
func (e *Env) profile(name string) (*profile, error) {
	if name == profileLocal {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	all, err := e.loadProfiles()
	if err != nil {
		return nil, err
	}
	given := name != ""
	if !given {
		name = all.Use
	}
	p := all.Profiles[name]
	if p == nil && given {
		return nil, usagef("there is no profile %.64q (see \"belay profile list\")", name)
	}
	return p, nil
}

// load reads the files; nil if none is named.
func (t *tlsFiles) load() (*tls.Config, error) {
	if *t == (tlsFiles{}) {
		return nil, nil //nolint:nilnil // the zero configuration is the system's
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, exitErrorf(ExitFailed, "the client's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, exitErrorf(ExitFailed, "the authority's certificate: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the authority's certificate: %s holds none", t.CA)
		}
	}
	return c, nil
}
