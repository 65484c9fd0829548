package scheduler

// The stories in testdata, in the language of package stories: the state that the verbs change, and the text of the
// outcomes. -update writes the outcomes into the files.

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/stories"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

var update = flag.Bool("update", false, "write what the stories say now")

func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			err := stories.Check(file, *update, func(text string) string {
				got := tell(t, text, step.DefaultConfig().KeepWhole)
				if archived := tell(t, text, 0); got != archived {
					t.Errorf("with each job archived at once the outcome differs:\n%s", archived)
				}
				return got
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// tell runs a story with a core that keeps keepWhole ended jobs in memory.
func tell(t *testing.T, text string, keepWhole int) string {
	s := newStory(t, keepWhole)
	return stories.Tell(text, func(c stories.Command) string {
		s.out.Reset()
		s.act(c)
		return s.out.String()
	})
}

var storyStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// story is a core, its journal, and names for the ids that it draws.
type story struct {
	t       *testing.T
	out     strings.Builder
	cfg     step.Config
	now     time.Time
	core    *Core
	log     []job.Committed
	pending []job.Record // proposed, not committed
	auto    bool         // records are committed at once
	term    uint64
	read    step.Token
	tokens  step.Token
	askers  map[step.Token]string
	jobs    map[string]job.ID
	ids     []string // for a strings.Replacer: the drawn ids and their names
	layouts map[string]job.Layout
	latest  map[string]contract.Offer // by "worker task"
	offers  map[uint64]int
	seqs    map[string]uint64
	events  map[job.Attempt]uint64
	stores  map[string]string
	rows    statetest.Disk
	illegal func(step.Notice) // called with each illegal move
}

func newStory(t *testing.T, keepWhole int) *story {
	s := &story{
		t: t, cfg: step.DefaultConfig(), now: storyStart, auto: true, askers: map[step.Token]string{}, jobs: map[string]job.ID{},
		layouts: map[string]job.Layout{}, latest: map[string]contract.Offer{}, offers: map[uint64]int{}, seqs: map[string]uint64{}, events: map[job.Attempt]uint64{},
		stores: map[string]string{}, rows: statetest.Disk{},
	}
	s.illegal = func(n step.Notice) { t.Errorf("illegal move of %s: %s", n.Attempt, n.Detail) }
	s.cfg.Self, s.cfg.Group, s.cfg.Seed, s.cfg.KeepWhole = "here", 7, 1, keepWhole
	s.core = NewCore(s.cfg, Saved{}, s.now)
	return s
}

// do runs one line of a story.
func (s *story) do(line string) { s.act(stories.Parse(line)) }

func (s *story) act(c stories.Command) {
	do, ok := storyVerbs[c.Verb]
	if !ok {
		s.t.Fatalf("no verb %q", c.Verb)
	}
	do(s, append(c.Args, "", ""), c.Options)
}

func (s *story) step(events ...step.Event) {
	s.show(s.core.Step(s.now, append(events, step.RowsKept{Applied: s.core.Applied()})...))
	for s.core.plan.again {
		s.show(s.core.Step(s.now))
	}
	if s.auto && len(s.pending) > 0 {
		s.commit(len(s.pending))
	}
}

// commit commits the first n proposed records.
func (s *story) commit(n int) {
	records := s.pending[:n]
	s.pending = s.pending[n:]
	s.deliver(job.Committed{Records: records})
}

func (s *story) deliver(m job.Committed) {
	m.Index, m.Epoch = uint64(len(s.log)+1), job.Epoch{Generation: 1, Term: s.term}
	s.log = append(s.log, m)
	s.step(s.withRows(m)...)
}

// withRows returns an entry with the rows that the core needs before it.
func (s *story) withRows(m job.Committed) []step.Event {
	events, err := AddRows(s.core, []step.Event{step.Committed{Committed: m}}, func(id job.ID) ([]job.Row, error) { return s.rows.Rows(id, "", ""), nil })
	if err != nil {
		s.t.Fatal(err)
	}
	return events
}

// wait lets time pass and performs each step that is due.
func (s *story) wait(d time.Duration) {
	end := s.now.Add(d)
	for {
		wake := s.core.Wake()
		if wake.IsZero() || wake.After(end) {
			break
		}
		if wake.After(s.now) {
			s.now = wake
		}
		s.step()
	}
	s.now = end
	s.step()
}

func (s *story) printf(format string, args ...any) {
	fmt.Fprintln(&s.out, strings.NewReplacer(s.ids...).Replace(fmt.Sprintf(format, args...)))
}

// show writes the effects of a step.
func (s *story) show(fx step.Effects) {
	s.rows.Save(fx.Rows, fx.Gone)
	for _, r := range fx.Propose {
		if r, ok := r.(job.SubmitRecord); ok {
			s.jobs[r.Spec.Name] = r.Job
			s.ids = append(s.ids, string(r.Job), r.Spec.Name)
		}
		s.printf("propose %s", recordText(r))
	}
	s.pending = append(s.pending, fx.Propose...)
	for _, o := range fx.Send {
		if m, ok := o.Msg.(contract.Offer); ok {
			if s.offers[m.ID] == 0 { // otherwise the offer is renewed
				s.offers[m.ID] = len(s.offers) + 1
			}
			of := job.Attempt{Job: m.Attempt.Job, Task: m.Attempt.Task}
			s.latest[string(o.To)+" "+of.String()] = m
		}
		s.printf("%s <- %s", o.To, s.messageText(o.Msg))
	}
	if fx.Raise != (job.Epoch{}) {
		s.printf("raise %s", fx.Raise)
	}
	if fx.Read != 0 {
		s.read = fx.Read
		s.printf("read %d", fx.Read)
	}
	for _, class := range fx.Find {
		s.printf("find %s", class)
	}
	for _, p := range fx.Want {
		s.printf("want %s", p)
	}
	for _, p := range fx.Unwant {
		s.printf("unwant %s", p)
	}
	if len(fx.Unfollow) > 0 {
		s.printf("unfollow %v", fx.Unfollow)
	}
	if len(fx.Follow) > 0 {
		s.printf("follow %v", fx.Follow)
	}
	if fx.Announce {
		s.printf("announce %v", fx.Wants)
	}
	for _, r := range fx.Reply {
		if r.Archived != nil {
			r.Job, _ = s.rows.Job(r.Archived.ID)
		}
		if r.Err != nil {
			s.printf("%s: %v", s.askers[r.Token], r.Err)
		} else if strings.HasPrefix(s.askers[r.Token], "dead ") {
			s.printf("%s: %d given up", s.askers[r.Token], r.GivenUp)
		} else if x := r.Reset; x != nil {
			s.printf("%s: %d back-offs ended, %d placed %v, waiting %v, %d more", s.askers[r.Token], x.Ended, x.Tasks, x.Placed, x.Waiting, x.More)
		} else if strings.HasPrefix(s.askers[r.Token], "forget ") {
			s.printf("%s: done", s.askers[r.Token])
		} else {
			s.printf("%s: %s %s", s.askers[r.Token], r.Job.ID, r.Job.State())
		}
	}
	for _, t := range fx.Notices {
		if t.Kind == step.IllegalMove {
			s.illegal(t)
		}
		if t.Kind == step.RowsDamaged {
			s.printf("told: rows of %s: %s", t.Attempt.Job, t.Detail)
		}
		if t.Kind == step.TaskWrittenOff || t.Kind == step.NewerOwner || t.Kind == step.MessageDefect || t.Kind == step.NodeDead {
			s.printf("told: %s %s %s", [...]string{"started", "ended", "written off", "found", "lost", "gone", "newer owner", "defect", "declared dead by"}[t.Kind], t.Node, t.Detail)
		}
	}
	if len(fx.Gone) > 0 {
		s.printf("gone %v", fx.Gone)
	}
}

func tasksText(ranges []job.Range) string {
	if len(ranges) == 0 {
		return ""
	}
	return "." + job.RangesText(ranges)
}

func recordText(r job.Record) string {
	switch r := r.(type) {
	case job.SubmitRecord:
		return "submit " + string(r.Job)
	case job.AssignRecord:
		return fmt.Sprintf("assign %s to %s", r.Attempt, r.Node)
	case job.UnassignRecord:
		return fmt.Sprintf("unassign %s %s", r.Attempt, r.Proof)
	case job.AssignGangRecord:
		text := fmt.Sprintf("assign gang %s to", r.Attempt)
		for _, m := range r.Members {
			text += " " + string(m.Node)
		}
		return text
	case job.UnassignGangRecord:
		return fmt.Sprintf("unassign gang %s %s", r.Attempt, r.Proof)
	case job.ResultRecord:
		return fmt.Sprintf("result %s %s", r.Attempt, r.Exit.State)
	case job.CancelRecord:
		return "cancel " + string(r.Job) + tasksText(r.Tasks)
	case job.HoldRecord:
		return fmt.Sprintf("hold %s%s release=%v", r.Job, tasksText(r.Tasks), r.Release)
	case job.RequeueRecord:
		return fmt.Sprintf("requeue %s%s failed=%v", r.Job, tasksText(r.Tasks), r.Failed)
	case job.ParentRecord:
		return strings.TrimRight(fmt.Sprintf("parent %s %s started=%v %s", r.Parent, r.State, r.Started, statesText(r.Tasks)), " ")
	case job.PurgeRecord:
		return "purge " + string(r.Job)
	}
	return "nothing"
}

func statesText(x job.TaskStates) string {
	if x.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("succeeded=%v failed=%v open=%v", x.Succeeded, x.Failed, x.Open)
}

func (s *story) messageText(m contract.ToWorker) string {
	switch m := m.(type) {
	case contract.Owns:
		return "owns " + m.Groups[0].Epoch.String()
	case contract.Offer:
		text := fmt.Sprintf("offer #%d %s wait=%s", s.offers[m.ID], m.Attempt, m.Wait)
		if m.Preempt {
			text += " preempt"
		}
		if m.Gang > 0 {
			text += fmt.Sprintf(" gang=%d", m.Gang)
		}
		if m.Firm {
			text += " firm"
		}
		return text
	case contract.Release:
		return fmt.Sprintf("release #%d", s.offers[m.Offer])
	case contract.Start:
		text := ""
		if m.Gang != nil {
			text = fmt.Sprintf(" rank=%d port=%d", m.Element.Rank, m.Gang.Port)
			for _, x := range m.Gang.Members {
				text += fmt.Sprintf(" %s=%s", x.Name, x.Address)
			}
		}
		return fmt.Sprintf("start #%d %s session=%d", s.offers[m.Offer], m.Attempt, m.Session) + text + map[bool]string{true: " preempted before"}[m.Element.Preempted]
	case contract.Query:
		return fmt.Sprintf("query %s store=%s", m.Attempt, m.Store)
	case contract.Cancel:
		return fmt.Sprintf("cancel %s: %s", m.Attempt, m.Reason)
	case contract.Ack:
		return fmt.Sprintf("ack %s %d", m.Attempt, m.N)
	case contract.Renewed:
		text := fmt.Sprintf("renewed clock=%d session=%d", m.Clock, m.Session)
		for _, v := range m.Verdicts {
			text += fmt.Sprintf(" %s keep=%v", v.Attempt, v.Keep)
		}
		return text
	}
	return fmt.Sprintf("%T", m)
}
