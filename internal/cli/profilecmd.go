package cli

import (
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin/client"
)

type profileCmd struct {
	Add    profileAddCmd    `cmd:"" help:"Keep a server under a name."`
	List   profileListCmd   `cmd:"" help:"List what is kept."`
	Use    profileUseCmd    `cmd:"" help:"Ask this server when nothing else is said."`
	Remove profileRemoveCmd `cmd:"" help:"Forget a server."`
}

// Help implements kong.HelpProvider.
func (*profileCmd) Help() string {
	return `A profile is a server with the token to show there, under a name for --profile. They lie in profiles.json in Belay's folder of
your configuration, which only you can read. The name "local" always means your own processes.

Examples:

    belay profile add work --server https://belay.example.com --token-file ~/.belay-work
    belay token | belay profile add here --server http://127.0.0.1:7474 --token-stdin
    belay ps --profile work
    belay profile use work        from now on for every command
    belay profile use local       your own processes again`
}

var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

type profileAddCmd struct {
	Name       string `arg:"" help:"What to call it."`
	Server     string `required:"" placeholder:"URL" help:"http(s)://HOST:PORT or unix:/PATH."`
	TokenFile  string `placeholder:"FILE" help:"Read the token from this file each time; only its name is kept."`
	TokenStdin bool   `help:"Read the token from standard input now, and store it with the profile."`
	CA         string `name:"ca" placeholder:"FILE" help:"Trust the certificates of this authority, not the system's."`
	Cert       string `placeholder:"FILE" help:"Show this certificate."`
	Key        string `placeholder:"FILE" help:"The certificate's key."`
}

// Run keeps a server.
func (c *profileAddCmd) Run(env *Env) error {
	switch {
	case c.Name == profileLocal || !profileName.MatchString(c.Name):
		return usagef("%.64q cannot be a profile's name: letters, digits, dots and dashes, and not %q, which is your own processes", c.Name, profileLocal)
	case c.TokenFile != "" && c.TokenStdin:
		return usagef("--token-file and --token-stdin exclude one another")
	case (c.Cert == "") != (c.Key == ""):
		return usagef("--cert and --key belong together")
	}
	if _, err := client.New(client.Options{Server: c.Server}); err != nil {
		return usagef("--server: %s", strings.TrimPrefix(err.Error(), belay.ErrBadRequest.Error()+": "))
	}
	p := &profile{Server: c.Server, tlsFiles: tlsFiles{c.CA, c.Cert, c.Key}}
	for _, f := range []struct{ from, to *string }{{&c.TokenFile, &p.TokenFile}, {&c.CA, &p.CA}, {&c.Cert, &p.Cert}, {&c.Key, &p.Key}} {
		if *f.from == "" {
			continue
		}
		path, err := filepath.Abs(*f.from) // it is read from other directories later
		if err != nil {
			return exitErrorf(ExitFailed, "profile: %w", err)
		}
		*f.to = path
	}
	if c.TokenStdin {
		text, err := io.ReadAll(io.LimitReader(env.Stdin, maxTokenFile))
		if err != nil {
			return exitErrorf(ExitFailed, "profile: read the token: %w", err)
		}
		if p.Token = strings.TrimSpace(string(text)); p.Token == "" || strings.ContainsAny(p.Token, " \n\t") {
			return usagef("--token-stdin: want one token on standard input")
		}
	}
	all, err := env.loadProfiles()
	if err != nil {
		return err
	}
	_, known := all.Profiles[c.Name]
	all.Profiles[c.Name] = p
	if err := env.saveProfiles(all); err != nil {
		return err
	}
	verb := "is kept"
	if known {
		verb = "was replaced"
	}
	env.Warnf("the profile %s %s (see \"belay ps --profile %s\")", c.Name, verb, c.Name)
	return nil
}

type profileListCmd struct {
	JSON bool `name:"json" help:"Print JSON: an array of profiles, without their tokens."`
}

// profileView is what may be shown of a profile.
type profileView struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Token  string `json:"token"` // stored, the file's name, or none
	InUse  bool   `json:"in_use"`
}

// Run lists the profiles.
func (c *profileListCmd) Run(env *Env) error {
	all, err := env.loadProfiles()
	if err != nil {
		return err
	}
	var list []profileView
	for _, name := range slices.Sorted(maps.Keys(all.Profiles)) {
		p := all.Profiles[name]
		if p == nil {
			continue
		}
		v := profileView{name, p.Server, "none", name == all.Use}
		switch {
		case p.Token != "":
			v.Token = "stored"
		case p.TokenFile != "":
			v.Token = p.TokenFile
		case p.Cert != "":
			v.Token = "certificate " + p.Cert
		}
		list = append(list, v)
	}
	if c.JSON {
		return printJSON(env.Stdout, list)
	}
	if len(list) == 0 {
		env.Warnf("there are no profiles (see \"belay profile add --help\")")
		return nil
	}
	t := &table{columns: []column{{head: "PROFILE"}, {head: "SERVER"}, {head: "TOKEN"}, {head: "IN USE"}}}
	for _, v := range list {
		used := ""
		if v.InUse {
			used = "yes"
		}
		t.add(cell{v.Name, bold}, cell{oneLine(v.Server), plain}, cell{oneLine(v.Token), faint}, cell{used, good})
	}
	t.print(env.Stdout, styleOf(env.Stdout, env.Getenv))
	return nil
}

type profileUseCmd struct {
	Name string `arg:"" help:"The profile, or \"local\" for your own processes."`
}

// Run makes a profile the one that is asked.
func (c *profileUseCmd) Run(env *Env) error {
	all, err := env.loadProfiles()
	if err != nil {
		return err
	}
	if all.Profiles[c.Name] == nil && c.Name != profileLocal {
		return usagef("there is no profile %.64q (see \"belay profile list\")", c.Name)
	}
	if all.Use = c.Name; c.Name == profileLocal {
		all.Use = ""
	}
	return env.saveProfiles(all)
}

type profileRemoveCmd struct {
	Name string `arg:"" help:"The profile."`
}

// Run forgets a profile, and the token that is stored with it.
func (c *profileRemoveCmd) Run(env *Env) error {
	all, err := env.loadProfiles()
	if err != nil {
		return err
	}
	if _, ok := all.Profiles[c.Name]; !ok {
		return exitErrorf(ExitNothing, "there is no profile %.64q", c.Name)
	}
	delete(all.Profiles, c.Name)
	if all.Use == c.Name {
		all.Use = ""
	}
	return env.saveProfiles(all)
}
