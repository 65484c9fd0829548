package worker_test

// The stories in testdata, in the language of package stories: a host, and the text that shows its steps. The flag
// -update writes the present outcomes into the files.

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/stories"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

var update = flag.Bool("update", false, "write the present outcomes into the stories")

func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			err := stories.Check(file, *update, func(text string) string {
				s := newStory(t)
				return stories.Tell(text, s.do)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// story is a host with names for its attempts, offers and sessions.
type story struct {
	*host
	t        *testing.T
	out      strings.Builder
	polled   bool // the present command has shown a poll
	began    leaseclock.Moment
	jobs     map[string]job.Attempt // the newest attempt of each
	ids      map[job.ID]string
	offers   map[string]uint64            // the newest, by "peer job"
	renewals map[job.Peer]contract.Renew  // the newest
	sessions []contract.Session           // in the order in which they were made
	running  map[job.Attempt]driver.Event // tasks in the driver
	others   map[job.Peer]bool            // peers that have offered jobs of their own group
	owners   map[job.Peer]bool            // peers that have claimed the group; each other one has a group of its own
}

func newStory(t *testing.T) *story {
	s := &story{
		t: t, jobs: map[string]job.Attempt{}, ids: map[job.ID]string{}, offers: map[string]uint64{},
		renewals: map[job.Peer]contract.Renew{}, running: map[job.Attempt]driver.Event{}, owners: map[job.Peer]bool{amy: true}, others: map[job.Peer]bool{},
	}
	s.host = newHost(t, config(0))
	s.began = s.now
	return s
}

func (s *story) do(c stories.Command) string {
	do, ok := storyVerbs[c.Verb]
	if !ok {
		s.t.Fatalf("no verb %q", c.Verb)
	}
	s.show = s.turned
	s.out.Reset()
	s.polled = false
	do(s, c)
	return s.out.String()
}

func (s *story) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// attempt returns the newest attempt of a job; n=2 makes it the second.
func (s *story) attempt(c stories.Command, name string) job.Attempt {
	a, ok := s.jobs[name]
	if !ok {
		a = attempt(uint64(len(s.jobs)+1), 1)
		s.ids[a.Job] = name
	}
	a.N = c.Options.Number("n", a.N)
	s.jobs[name] = a
	return a
}

func (s *story) name(a job.Attempt) string {
	if a.N == 1 {
		return s.ids[a.Job]
	}
	return fmt.Sprintf("%s.%d", s.ids[a.Job], a.N)
}

func (s *story) names(attempts []job.Attempt) string {
	var out []string
	for _, a := range attempts {
		out = append(out, s.name(a))
	}
	return strings.Join(out, ",")
}

// session names a session by its number: s1 is the first.
func (s *story) session(id contract.Session) string {
	if id == 0 {
		return "none"
	}
	i := slices.Index(s.sessions, id)
	if i < 0 {
		i = len(s.sessions)
		s.sessions = append(s.sessions, id)
	}
	return fmt.Sprintf("s%d", i+1)
}

// since converts a reading of the lease clock to the time since the story began.
func (s *story) since(at leaseclock.BootTime) time.Duration {
	return at.Sub(s.began.Boot).Round(time.Millisecond)
}

func on(devices []string) string {
	if len(devices) == 0 {
		return ""
	}
	return " on " + strings.Join(devices, ",")
}

// turned writes the writes and the effects of a step.
func (s *story) turned(w worker.Writes, e worker.Effects) {
	if !w.Empty() {
		s.printf("%s", s.writesText(w))
	}
	for _, l := range e.Log {
		if l.Level >= slog.LevelWarn {
			s.printf("log %s: %s", l.Level, l.Msg)
		}
	}
	for _, t := range e.Start {
		until := "until " + s.since(t.Deadline).String()
		if t.Hold {
			until = "without end"
		}
		s.printf("start %s%s %s", s.name(t.Attempt), on(t.Devices), until)
	}
	for _, x := range e.Stop {
		s.printf("stop %s grace=%s: %s", s.name(x.Attempt), x.Grace, s.text(x.Reason))
	}
	for _, x := range e.Signal {
		s.printf("signal %s %d", s.name(x.Attempt), x.Number)
	}
	for _, a := range slices.SortedFunc(maps.Keys(e.Extend), func(a, b job.Attempt) int { return strings.Compare(a.String(), b.String()) }) {
		s.printf("extend %s until %s", s.name(a), s.since(e.Extend[a]))
	}
	for _, p := range e.Want {
		s.printf("want %s", p)
	}
	for _, p := range e.Unwant {
		s.printf("unwant %s", p)
	}
	for _, m := range e.Send {
		s.printf("%s <- %s", m.To, s.messageText(m.To, m.Msg))
	}
	if len(e.Forget) > 0 {
		s.printf("forget %s", s.names(e.Forget))
	}
	if e.Keep != nil {
		s.printf("save the quarantine")
	}
	if e.Poll && !s.polled {
		s.polled = true
		s.printf("poll devices")
	}
	for _, a := range e.Admit {
		s.printf("ask the policy about %s of %s", s.name(a.Attempt), a.User)
	}
}

func (s *story) writesText(w worker.Writes) string {
	var out []string
	for _, r := range w.Put {
		out = append(out, fmt.Sprintf("%s=%s", s.name(r.Attempt), r.Phase))
	}
	for _, a := range w.Gone {
		out = append(out, s.name(a)+"=gone")
	}
	for _, e := range w.Claims {
		out = append(out, "epoch="+e.Epoch.String())
	}
	verb := "save"
	if w.Sync {
		verb = "save and sync"
	}
	if s.failing {
		verb += " (fails)"
	}
	return verb + " " + strings.Join(out, " ")
}

// text replaces job ids by the names of the jobs.
func (s *story) text(text string) string {
	for id, name := range s.ids {
		text = strings.ReplaceAll(text, string(id), name)
	}
	return text
}

func freeText(f contract.Free) string {
	text := fmt.Sprintf("cpus=%d mem=%s gpus=", f.CPUs, f.Memory)
	for i, g := range f.GPUs {
		if i > 0 {
			text += ","
		}
		text += g.UUID
		if g.Milli != 1000 {
			text += fmt.Sprintf(":%d", g.Milli)
		}
	}
	if len(f.Quarantined) > 0 {
		text += " aside=" + strings.Join(f.Quarantined, ",")
	}
	return text
}

func (s *story) messageText(to job.Peer, m contract.ToScheduler) string {
	switch m := m.(type) {
	case contract.Hello:
		return "hello " + freeText(m.Free)
	case contract.Availability:
		text := "free " + freeText(m.Free)
		if m.Detail != "" {
			text += fmt.Sprintf(" draining=%v (%s)", m.Draining, s.text(m.Detail))
		}
		if len(m.UnderQuota) > 0 {
			text += " under=" + strings.Join(m.UnderQuota, ",")
		}
		return text
	case contract.Commit:
		return fmt.Sprintf("commit %s%s session=%s", s.name(m.Attempt), on(m.Devices), s.session(m.Session))
	case contract.Decline:
		text := fmt.Sprintf("decline %s %s", s.name(m.Attempt), s.text(m.Reason.String()))
		if m.Never {
			text += " (never)"
		}
		return text
	case contract.Event:
		text := fmt.Sprintf("event %d of %s: %s", m.N, s.name(m.Attempt), m.State)
		if m.Exit != nil {
			text += fmt.Sprintf(" code=%d", m.Exit.Code)
			if m.Exit.Reason != "" {
				text += " (" + s.text(m.Exit.Reason) + ")"
			}
		}
		if m.Refused != "" {
			text += " refused: " + s.text(m.Refused)
		}
		return text + strings.TrimSuffix(" ("+m.Detail+")", " ()")
	case contract.Renew:
		s.renewals[to] = m
		return fmt.Sprintf("renew at %s session=%s live=%s", s.since(leaseclock.BootTime(m.Clock)), s.session(m.Session), s.names(m.Live))
	case contract.Stale:
		return fmt.Sprintf("stale: %s owns epoch %s", cmp.Or(m.Owner, "another"), m.Epoch)
	}
	return fmt.Sprintf("%T", m)
}
