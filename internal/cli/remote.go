package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/local"
)

// The environment variables that say which server, and who asks.
const (
	envServer  = "BELAY_SERVER"
	envToken   = "BELAY_TOKEN"
	envProfile = "BELAY_PROFILE"
)

// profileLocal is the name that means no server: the processes of this user.
const profileLocal = "local"

// remoteFlags say whose runs a command is about. The zero value means those of
// this user's own processes, unless the environment or the profile in use says
// otherwise.
type remoteFlags struct {
	Server    string `placeholder:"URL" group:"server" help:"Ask this server instead of your own processes: http(s)://HOST:PORT or unix:/PATH ($$BELAY_SERVER)."`
	Token     string `placeholder:"TEXT" group:"server" help:"The token to show there ($$BELAY_TOKEN); others can see a command line: better use a file."`
	TokenFile string `placeholder:"FILE" group:"server" help:"Read the token from this file."`
	Profile   string `placeholder:"NAME" group:"server" help:"Ask the server of this profile (see \"belay profile\"; $$BELAY_PROFILE); \"local\": your own processes."`
}

// door is what a command lists and stops runs by.
type door interface {
	belay.Control
	// Stop is Cancel with a listener that gets each result as it comes.
	Stop(ctx context.Context, req belay.CancelRequest, each func(belay.CancelResult)) ([]belay.CancelResult, error)
}

// house is where the runs are that a command is about.
type house struct {
	door

	client *client.Client // nil: this user's own processes
	server string         // as people know it; empty without a client
	local  bool           // the server is on this machine
}

// target is a server, and how to be known there.
type target struct {
	server    string
	token     string
	tokenFile string
	tls       tlsFiles
}

// open says where the runs are. Nothing is sent yet.
func (f *remoteFlags) open(env *Env) (*house, error) {
	t, err := f.target(env)
	if err != nil {
		return nil, err
	}
	if t.server == "" {
		if f.Token != "" || f.TokenFile != "" {
			return nil, usagef("a token is for a server: say which with --server URL or --profile NAME")
		}
		return &house{door: env.mesh()}, nil
	}
	return env.dial(t)
}

// openServer is open for what only a server has: without another word it is the
// "belay serve" of this machine.
func (f *remoteFlags) openServer(env *Env) (*house, error) {
	t, err := f.target(env)
	if err != nil {
		return nil, err
	}
	if t.server == "" {
		t.server, t.token, t.tokenFile = "http://"+config.DefaultListen, f.Token, f.TokenFile
	}
	return env.dial(t)
}

// target decides between flags, environment and profiles: what is typed goes
// before what is set, and a server before a profile.
func (f *remoteFlags) target(env *Env) (target, error) {
	if f.Server != "" && f.Profile != "" {
		return target{}, usagef("--server and --profile exclude one another")
	}
	if f.Token != "" && f.TokenFile != "" {
		return target{}, usagef("--token and --token-file exclude one another")
	}
	t := target{server: f.Server}
	name := f.Profile
	if t.server == "" && name == "" {
		if t.server = env.Getenv(envServer); t.server == "" {
			name = env.Getenv(envProfile)
		}
	}
	if t.server == "" {
		p, err := env.profile(name)
		if err != nil || p == nil {
			return target{}, err
		}
		t = target{p.Server, p.Token, p.TokenFile, p.tlsFiles}
	}
	switch {
	case f.Token != "":
		t.token, t.tokenFile = f.Token, ""
	case f.TokenFile != "":
		t.token, t.tokenFile = "", f.TokenFile
	case t.token == "" && t.tokenFile == "":
		t.token = env.Getenv(envToken)
	}
	return t, nil
}

// dial makes the client. On this machine the user's own token is the one that is
// shown where no other is given; it never goes to another.
func (e *Env) dial(t target) (*house, error) {
	near := isNear(t.server)
	if t.tokenFile != "" {
		text, err := readTokenFile(t.tokenFile)
		if err != nil {
			return nil, err
		}
		t.token = text
	}
	if t.token == "" && near && t.tls.Cert == "" {
		token, err := auth.ReadLocalToken(auth.LocalTokenPath(e.Getenv, local.Dir(e.Getenv)))
		switch {
		case err == nil:
			t.token = token
		case !errors.Is(err, fs.ErrNotExist):
			e.Warnf("%v", err)
		}
	}
	config, err := t.tls.load()
	if err != nil {
		return nil, err
	}
	if t.token != "" && !near && strings.HasPrefix(t.server, "http://") {
		e.Warnf("%s is not encrypted: everybody on the way can read the token; use https", t.server)
	}
	c, err := client.New(client.Options{Server: t.server, Token: t.token, TLS: config, UserAgent: "belay/" + Version()})
	if err != nil {
		return nil, usagef("%s", strings.TrimPrefix(err.Error(), belay.ErrBadRequest.Error()+": "))
	}
	return &house{door: c, client: c, server: t.server, local: near}, nil
}

// isNear reports whether a server's address is this machine's.
func isNear(server string) bool {
	if strings.HasPrefix(server, "unix:") {
		return true
	}
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// maxTokenFile is more than any token has.
const maxTokenFile = 16 << 10

// readTokenFile reads a token: the file's text without the line's end.
func readTokenFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", usagef("--token-file: %w", err)
	case info.Mode().IsRegular() && info.Size() > maxTokenFile:
		return "", usagef("--token-file: %s is larger than any token", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", usagef("--token-file: %s is empty", path)
	}
	return token, nil
}

// explain adds to a server's refusal what the person can do about it. It keeps
// the error's class.
func (p *house) explain(err error) error {
	if p.client == nil || err == nil {
		return err
	}
	var e *client.Error
	refused := errors.As(err, &e)
	switch {
	case errors.Is(err, client.ErrUnauthorized) && p.local:
		return fmt.Errorf("%s does not accept the token: %w; \"belay token\" prints the one of this user's \"belay serve\", any other is given with --token-file", p.server, err)
	case errors.Is(err, client.ErrUnauthorized):
		return fmt.Errorf("%s does not accept the token: %w; ask whoever runs it for one (\"belay token new\") and give it with --token-file, or keep it with \"belay profile add\"", p.server, err)
	case refused && errors.Is(err, belay.ErrForbidden):
		return fmt.Errorf("%s does not permit that: %w; whoever runs it gives permissions by roles", p.server, err)
	case refused:
		return fmt.Errorf("%s: %w", p.server, err)
	case errors.Is(err, belay.ErrUnreachable) && tlsAdvice(err) != "":
		return fmt.Errorf("%w; %s", err, tlsAdvice(err))
	case errors.Is(err, belay.ErrUnreachable) && p.local:
		return fmt.Errorf("%w; is \"belay serve\" running there?", err)
	case errors.Is(err, belay.ErrUnreachable):
		return fmt.Errorf("%w; check the address and the network", err)
	}
	return err
}

// tlsAdvice is what to do where somebody answered and the two could not agree on
// how to encrypt; empty for any other error.
func tlsAdvice(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		other   x509.HostnameError
		invalid x509.CertificateInvalidError
		refused *net.OpError
	)
	switch {
	case errors.As(err, &unknown):
		return `if it is the right server, say who vouches for it: "belay profile add NAME --server URL --ca FILE", then --profile NAME`
	case errors.As(err, &other):
		return "use one of the names that its certificate has"
	case errors.As(err, &invalid):
		return "whoever runs it has to renew its certificate"
	case errors.As(err, &refused) && refused.Op == "remote error": // an alert of crypto/tls
		return "it does not accept the certificate of this profile (--cert, --key)"
	case strings.Contains(err.Error(), "gave HTTP response to HTTPS client"):
		return "it does not encrypt: begin its address with http://"
	}
	return ""
}

// explained is explain for each error that err joins.
func (p *house) explained(err error) error {
	var list []error
	for _, one := range flatten(err) {
		list = append(list, p.explain(one))
	}
	return errors.Join(list...)
}
