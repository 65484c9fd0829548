package sim

// Jobs of the load as their users see them: submitted, accepted, ended.

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// submission is a job of the load.
type submission struct {
	w     *World
	index int // in load.Load.Jobs
	owner *owner
	user  string
	key   string    // idempotency key; empty if no daemon ever dies, so that the job is submitted once
	spec  *job.Spec // as the load has it; see spec
	runs  time.Duration
	bytes int64
	nodes int // of each element, if its elements are gangs; else 0

	depends  []dependency
	awaited  []*submission // jobs that are submitted once this job is accepted
	missing  int           // jobs that must be accepted before this one can be submitted
	due      bool          // its submission time has come
	id       job.ID        // set once its owner has the job
	accepted bool
	refused  error // for good
	elements []element
	left     int // elements that have not ended
}

// dependency is one of the jobs on which a job depends.
type dependency struct {
	job.Dependency
	on *submission
}

// element is a single task, a task of an array, or a gang.
type element struct {
	stint   *stint        // the newest; nil: it was never started
	saved   time.Duration // part of its work that is not lost if the stint ends
	resumes bool          // it has saved work: a start costs Config.Restart
	ended   bool          // it has done its work, or has failed for good
}

// addJobs adds the jobs of the load.
func (w *World) addJobs() error {
	w.works = make([]*submission, 0, len(w.cfg.Load.Jobs))
	all := make([]submission, len(w.cfg.Load.Jobs)) // in one piece
	for i := range w.cfg.Load.Jobs {
		x := &w.cfg.Load.Jobs[i]
		s := &all[i]
		*s = submission{w: w, index: i, user: x.User, spec: &x.Spec, runs: x.Runs, bytes: x.Bytes}
		if s.user == "" {
			s.user = "sim"
		}
		if w.durable {
			s.key = keyOf(i)
		}
		if x.Submit < 0 || x.Runs < 0 || x.Bytes < 0 {
			return fmt.Errorf("sim: job %s: submit %s, runs %s, %d bytes of files: none may be negative", x.Name, x.Submit, x.Runs, x.Bytes)
		}
		if err := s.lay(); err != nil {
			return fmt.Errorf("sim: job %s: %w", x.Name, err)
		}
		w.works = append(w.works, s)
	}
	w.left = len(w.works)
	if err := w.addDependencies(); err != nil {
		return err
	}
	turn := 0
	for _, s := range w.works {
		if s.owner == nil {
			s.owner = w.routed(s.user, turn)
			turn++
		}
		w.appoint(warmUp+w.cfg.Load.Jobs[s.index].Submit, s.comes)
	}
	return nil
}

// routed returns the scheduler to which the next job of a user goes.
func (w *World) routed(user string, turn int) *owner {
	if w.cfg.Route == ByUser {
		h := fnv.New64a()
		_, _ = h.Write([]byte(user))
		return w.owners[h.Sum64()%uint64(len(w.owners))]
	}
	return w.owners[turn%len(w.owners)]
}

// lay makes the elements of the job.
func (s *submission) lay() error {
	layout, err := s.spec.Layout()
	if err != nil {
		return err
	}
	if layout.Size() > 1 {
		s.nodes = layout.Size()
	}
	s.left = layout.Tasks() / layout.Size()
	return nil
}

// element returns the element of a task, and its number.
func (s *submission) element(task int) (*element, int) {
	k := task / max(s.nodes, 1)
	if s.elements == nil {
		s.elements = make([]element, s.count())
	}
	return &s.elements[k], k
}

// count returns the number of elements.
func (s *submission) count() int {
	layout, err := s.spec.Layout()
	if err != nil {
		return 0 // cannot happen: lay has read the layout
	}
	return layout.Tasks() / layout.Size()
}

// asked returns the spec that the user submits.
func (s *submission) asked() job.Spec {
	spec := *s.spec
	if len(spec.Command) == 0 && spec.Script == "" && spec.Image == "" {
		spec.Command = command
	}
	if spec.Retries == 0 {
		spec.Retries = s.w.retries
	}
	if s.w.cfg.Known && spec.TimeLimit == 0 {
		limit := s.runs + limitSlack
		if spec.Preemptible {
			limit += s.w.cfg.Restart
		}
		if limit <= job.MaxTimeLimit {
			spec.TimeLimit = job.Duration(limit)
			if spec.Grace == 0 {
				spec.Grace = job.Duration(time.Second)
			}
		}
	}
	if len(s.depends) > 0 {
		d, err := job.ParseDependencies(spec.Dependency, true)
		if err == nil {
			for i := range d.Terms {
				d.Terms[i].Job = s.depends[i].on.id
			}
			spec.Dependency = d.List()
		}
	}
	return spec
}

var command = []string{"true"}

// limitSlack is by how much a time limit of Config.Known is above the run time: hosts that start a gang differ a little.
const limitSlack = time.Second

// comes is called at the job's submission time. It submits the job, unless the jobs on which it depends are not
// accepted yet.
func (s *submission) comes() {
	s.due = true
	if s.left > 0 {
		s.w.open++
	}
	if s.missing == 0 {
		s.submit()
	}
}

// submit submits the job, as its user does.
func (s *submission) submit() {
	if s.accepted || s.refused != nil || s.left == 0 {
		return
	}
	for i := s.owner.index; s.owner.local != nil && s.owner.local.gone; { // skip owners whose machine is gone for good
		if i = (i + 1) % len(s.w.owners); i == s.owner.index {
			s.refused = errNoOwner
			s.w.rejectAll(s)
			return
		}
		if o := s.w.owners[i]; o.local == nil || !o.local.gone {
			s.owner = o
		}
	}
	s.owner.ask(request{s: s}, func(tok step.Token) step.Event {
		return step.Submit{Token: tok, Submission: job.Submission{User: s.user, Key: s.key, Spec: s.asked()}, Brief: true}
	})
}

var errNoOwner = errors.New("all machines that accept jobs are gone for good")

// The pauses after which a user tries again: if the scheduler is busy, and if no host could run the job now.
var (
	busyPause    = Range{time.Second, 5 * time.Second}
	noMatchPause = Range{10 * time.Second, 30 * time.Second}
)

// submitted handles the answer to a submission.
func (s *submission) submitted(r step.Reply) {
	w := s.w
	var noMatch *step.NoMatchError
	switch {
	case r.Err == nil:
		if s.accepted {
			return
		}
		s.accepted, s.id = true, r.Job.ID
		if r.Archived != nil {
			s.id = r.Archived.ID
		}
		w.byID[s.id] = s
		w.counts.Accepted++
		for _, next := range s.awaited {
			if next.missing--; next.missing == 0 && next.due {
				next.submit()
			}
		}
		s.awaited = nil
	case errors.Is(r.Err, step.ErrBusy), errors.Is(r.Err, errJournal):
		w.after(w.draw(busyPause), s.submit)
	case errors.As(r.Err, &noMatch):
		if w.watch == nil || w.watch.refused(s, r.Err) {
			w.after(w.draw(noMatchPause), s.submit)
		}
	default:
		s.refused = r.Err
		if w.watch != nil {
			w.watch.refused(s, r.Err)
		}
		w.rejectAll(s)
	}
}

// rejectAll ends a job that was refused for good, and the jobs that wait for it to be accepted.
func (w *World) rejectAll(s *submission) {
	s.refuse()
	for k := range s.count() {
		w.reject(s, k)
	}
	for _, next := range s.awaited {
		if next.refused == nil && !next.accepted {
			next.refused = s.refused
			w.rejectAll(next)
		}
	}
	s.awaited = nil
}

// refuse records why the job was refused, if it is the first one that was.
func (s *submission) refuse() {
	if s.w.counts.Refusal == "" && s.refused != nil {
		s.w.counts.Refusal = fmt.Sprintf("job %s: %v", s.w.cfg.Load.Jobs[s.index].Name, s.refused)
	}
}

// reject notes that an element has failed for good.
func (w *World) reject(s *submission, k int) {
	if s.left == 0 {
		return
	}
	e, _ := s.element(k * max(s.nodes, 1))
	if e.ended {
		return
	}
	w.counts.Rejected++
	w.tell(record.Record{Kind: record.Reject, Job: s.index, Task: k})
	w.ended(s, e)
}

// ended notes that an element has ended.
func (w *World) ended(s *submission, e *element) {
	e.ended = true
	if s.left--; s.left > 0 {
		return
	}
	w.left--
	if s.due {
		w.open--
		w.stirred = w.now
	}
	if !w.durable {
		delete(w.byID, s.id)
		s.elements = nil
	}
}

// gpus returns the weight of an element's work: its GPUs, or 1 if it has none.
func (s *submission) gpus() float64 {
	n := float64(gpu.Count(s.spec.Resources)*gpu.Milli(s.spec.Resources)) / gpu.Whole
	if n == 0 {
		n = 1
	}
	return n * float64(max(s.nodes, 1))
}
