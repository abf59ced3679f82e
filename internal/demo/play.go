package demo

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Options are the settings of a demo.
type Options struct {
	Self     string            // the belay binary
	Progress func(line string) // told what is being played; may be nil
}

// Play plays every scene: all bare sides first, side by side, then each under
// Belay. It ends early when ctx does.
func Play(ctx context.Context, o Options) (Report, error) {
	start := time.Now()
	dir, err := os.MkdirTemp("", "belay-demo-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	scenes := Scenes()
	rows := make([]Row, len(scenes))
	say := o.Progress
	if say == nil {
		say = func(string) {}
	}
	say("playing every scene without Belay …")
	var bare sync.WaitGroup
	for i, s := range scenes {
		rows[i] = Row{Scene: s.Name, About: s.About}
		bare.Go(func() {
			if s.missing != nil {
				if rows[i].Skip = s.missing(); rows[i].Skip != "" {
					return
				}
			}
			rows[i].Bare = s.side(o.Self, dir, false)
		})
	}
	bare.Wait()
	ok := true
	for i, s := range scenes {
		if rows[i].Skip != "" {
			continue
		}
		if ctx.Err() != nil {
			return Report{Rows: rows, Took: time.Since(start)}, context.Cause(ctx)
		}
		say("under Belay: " + s.About + " …")
		rows[i].Belay = s.side(o.Self, dir, true)
		ok = ok && rows[i].Belay.OK
	}
	return Report{Rows: rows, Took: time.Since(start), OK: ok}, nil
}

// side plays one side of a scene and cleans up behind it.
func (s *Scene) side(self, dir string, under bool) Side {
	l, err := newLab(self, dir, s.Name, under, s.flags...)
	if err != nil {
		return Side{Error: err.Error()}
	}
	defer l.sweep()
	defer l.close()
	side, err := s.play(l)
	if err != nil {
		side.Error, side.OK = err.Error(), false
	}
	return side
}

// sweep ends what the bare side left alive; the tool's own witness names it.
func (l *lab) sweep() {
	for _, e := range l.witness.Events() {
		if p, err := os.FindProcess(e.Pid); err == nil && e.Pid != os.Getpid() {
			p.Kill()
		}
	}
}

// Verdicts is the row's verdicts in one word.
func (s *Side) Verdicts() belay.Verdict {
	worst := belay.Verdict("")
	for _, v := range s.Verdict {
		if worst == "" || v != belay.Confirmed {
			worst = v
		}
	}
	return worst
}
