package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/examples"
	"github.com/belayhq/belay/serve"
)

// examplesServer offers the scripts that Belay brings, where there is no
// configuration. They lie where a person can read them, with a small project for
// those that work on files: nothing of the user's is touched.
func (p *servePlan) examplesServer() (serve.Definition, error) {
	state := config.StateDir(p.getenv)
	if state == "" {
		return serve.Definition{}, errors.New("this user has no folder for them")
	}
	places, err := examples.Unpack(filepath.Join(state, "examples"))
	if err != nil {
		return serve.Definition{}, err
	}
	s, err := config.CompleteScripts(config.Server{
		Name: "examples", Policy: p.examplesPolicy(),
		Scripts: &config.Scripts{
			Dirs: []string{places.Tools}, AllowHosts: examples.Hosts(), EditorRoot: places.Sample, EditorWrite: true,
		},
	})
	return serve.Definition{Server: s}, err
}

// examplesPolicy is what the flags say of all servers, as far as it goes for scripts.
func (p *servePlan) examplesPolicy() config.Policy {
	policy := p.flags
	for _, o := range []*config.Option[string]{&policy.Enforce, &policy.Isolation, &policy.Restart} {
		*o = config.Option[string]{}
	}
	return policy
}

// mostNamed is how many scripts are named where there is little room.
const mostNamed = 3

// behindScripts names the scripts of a server, as their manifests have them.
func behindScripts(s *config.Scripts) string {
	all := script.OpenCollection(script.CollectionOptions{Dirs: s.Dirs}).Manifests()
	names := make([]string, 0, mostNamed)
	for _, m := range all[:min(len(all), mostNamed)] {
		names = append(names, m.ID)
	}
	switch text := "scripts " + strings.Join(names, ", "); {
	case len(all) == 0:
		return "no scripts in " + filepath.Base(s.Dirs[0])
	case len(all) > mostNamed:
		return fmt.Sprintf("%s and %d more", text, len(all)-mostNamed)
	default:
		return text
	}
}
