package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay/auth"
)

type tokenNewCmd struct {
	Name    string   `arg:"" help:"Who has it: letters, digits, . _ @ -."`
	Role    []string `default:"user" placeholder:"ROLE" help:"What it may do: admin, operator, user (default), observer, runtime, or a role of belay.yaml; more than one may be given."`
	Expires string   `placeholder:"TIME" help:"When it ends: 720h from now, 30d, or a date such as 2027-01-31. Default: never."`
	JSON    bool     `name:"json" help:"Print token, hash and the lines for belay.yaml as one JSON object."`
}

// Help implements kong.HelpProvider.
func (*tokenNewCmd) Help() string {
	return `Makes 256 random bits. The token goes to standard output, once, and is kept nowhere; the lines for belay.yaml, which keeps
only its SHA-256, go to standard error. Nothing is changed: add the lines yourself, and a running belay serve takes them as
soon as the file is saved.

To replace a token without a gap, add the new one under the same name, hand it out, then remove the old one's lines.

Examples:

    belay token new ci --expires 720h
    belay token new ann --role operator
    belay token new ci > ci.token 2> lines.yaml
    belay token new turns --role runtime --json`
}

// newToken is what belay token new --json prints.
type newToken struct {
	Name    string     `json:"name"`
	Token   string     `json:"token"`
	Hash    string     `json:"hash"`
	Roles   []string   `json:"roles"`
	Expires *time.Time `json:"expires,omitempty"`
	YAML    string     `json:"yaml"`
}

// Run makes a token and prints it.
func (c *tokenNewCmd) Run(env *Env) error {
	t := newToken{Name: c.Name, Roles: c.Role}
	if c.Expires != "" {
		end, err := expiry(c.Expires, time.Now())
		if err != nil {
			return usagef("token new: --expires %q %v", c.Expires, err)
		}
		t.Expires = &end
	}
	own, err := t.check()
	if err != nil {
		return usagef("token new: %s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), auth.ErrConfig.Error()+": "), "token: "))
	}
	t.Token, t.Hash = auth.NewToken()
	t.YAML = t.lines()
	if c.JSON {
		return printObject(env.Stdout, t)
	}
	if _, err := fmt.Fprintln(env.Stdout, t.Token); err != nil {
		return err // nobody has seen it, so it is not to be added
	}
	// Standard error is YAML as a whole, so that it can be appended to a file.
	fmt.Fprintf(env.Stderr, "# belay: the token is shown this once; it opens nothing until this is in belay.yaml:\n%s", t.YAML)
	for _, role := range own {
		fmt.Fprintf(env.Stderr, "# belay: %s is no built-in role: say what it may do in roles: below auth:\n", role)
	}
	return nil
}

// check says whether belay.yaml could hold this token, and which of its roles
// have to be made there.
func (t *newToken) check() (own []string, err error) {
	_, hash := auth.NewToken()
	given := auth.Config{Tokens: []auth.Token{{Name: t.Name, Hash: hash}}, Roles: map[string][]auth.Permission{}}
	a, err := auth.New(given)
	if err != nil {
		return nil, err
	}
	a.Close()
	for _, role := range t.Roles {
		given.Roles = map[string][]auth.Permission{role: nil}
		a, err := auth.New(given)
		if err == nil {
			a.Close()
			own = append(own, role)
			continue
		}
		given.Roles, given.Tokens[0].Roles = nil, []string{role}
		if a, builtin := auth.New(given); builtin == nil {
			a.Close()
			continue
		}
		return nil, err
	}
	return own, nil
}

// lines are those for belay.yaml. Everything in them is quoted: a name may look
// like a number.
func (t *newToken) lines() string {
	var b strings.Builder
	roles := slices.Clone(t.Roles)
	for i, role := range roles {
		roles[i] = strconv.Quote(role)
	}
	fmt.Fprintf(&b, "auth:\n  tokens:\n    - name: %q\n      hash: %q\n      roles: [%s]\n", t.Name, t.Hash, strings.Join(roles, ", "))
	if t.Expires != nil {
		fmt.Fprintf(&b, "      expires: %s\n", t.Expires.Format(time.RFC3339))
	}
	return b.String()
}

// expiry reads a time from now or a date, in whole seconds.
func expiry(text string, now time.Time) (time.Time, error) {
	var end time.Time
	days, isDays := strings.CutSuffix(text, "d")
	n, bad := strconv.Atoi(days)
	switch {
	case isDays && bad == nil && n < 36_500:
		end = now.AddDate(0, 0, n)
	default:
		d, err := time.ParseDuration(text)
		end = now.Add(d)
		if err != nil {
			if end, err = time.Parse(time.DateOnly, text); err != nil {
				if end, err = time.Parse(time.RFC3339, text); err != nil {
					return end, fmt.Errorf("is no time: write 720h, 30d, 2027-01-31 or 2027-01-31T18:00:00Z")
				}
			}
		}
	}
	if !end.After(now) {
		return end, fmt.Errorf("is not in the future")
	}
	return end.UTC().Truncate(time.Second), nil
}
