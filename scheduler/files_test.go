package scheduler

// Large job files are on disk while their jobs wait. They are read when a task starts.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

// filed is a core with hosts and a disk.
type filed struct {
	*bench
	disk  statetest.Disk
	specs map[job.ID]job.Spec
}

func newFiled(t *testing.T) *filed {
	x := &filed{bench: newBench(t, 2, 4), disk: statetest.Disk{}, specs: map[job.ID]job.Spec{}}
	x.keep = true
	return x
}

// submit submits a job with hold, and returns its ID.
func (x *filed) submit(spec job.Spec) job.ID {
	spec.Hold = true
	x.tok++
	before := len(x.core.entries.byID)
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{User: "amy", Spec: spec}})
	if len(x.core.entries.byID) != before+1 {
		panic("not submitted")
	}
	var id job.ID
	for other := range x.core.entries.byID {
		if _, old := x.specs[other]; !old {
			id = other
		}
	}
	x.specs[id] = spec
	x.save()
	return id
}

// save writes the rows of the last steps.
func (x *filed) save() {
	x.disk.Save(x.rows, nil)
	x.rows = nil
	x.step(step.RowsKept{Applied: x.core.Applied()})
}

func (x *filed) release(id job.ID) {
	x.tok++
	x.step(step.Hold{Token: x.tok, Job: id, Release: true})
}

// answer has hosts commit to all offers, and returns the Start messages.
func (x *filed) answer() (starts []contract.Start) {
	for len(x.sent) > 0 {
		sent := x.sent
		x.sent = nil
		for _, o := range sent {
			switch m := o.Msg.(type) {
			case contract.Offer:
				x.step(step.FromWorker{Peer: o.To, Msg: commitTo(o.To, m)})
			case contract.Start:
				starts = append(starts, m)
			default:
			}
		}
	}
	return starts
}

// read completes the reads of all wanted files, and returns the Start messages that follow.
func (x *filed) read(err error) (starts []contract.Start) {
	for len(x.files) > 0 {
		f := x.files[0]
		x.files = x.files[1:]
		x.step(ReadFile(f, func(id job.ID) ([]byte, error) { return x.disk.File(id), err }))
		starts = append(starts, x.answer()...)
	}
	return starts
}

func largeSpec(n int) job.Spec {
	s := benchSpec(0)
	s.Command, s.Script = nil, fmt.Sprintf("#!/bin/sh\n# %d\n", n)+strings.Repeat("# work\n", 50_000)
	return s
}

func (x *filed) check(t *testing.T, s contract.Start) {
	t.Helper()
	want, err := x.specs[s.Attempt.Job].TaskFile()
	if err != nil || s.File.Digest() != want.Digest() {
		t.Errorf("%s started with another job file than the submitted one (%v)", s.Attempt, err)
	}
}

func TestWaitingJobIsReadFromDiskToStart(t *testing.T) {
	x := newFiled(t)
	id := x.submit(largeSpec(1))
	e := x.core.entries.byID[id]
	if e.job.File.Text() != nil {
		t.Fatal("the file of a job that waits is in memory")
	}
	x.release(id)
	if starts := x.answer(); len(starts) > 0 {
		t.Fatal("it started before its file was read")
	}
	if len(x.files) != 1 {
		t.Fatalf("%d files are read, want 1", len(x.files))
	}
	starts := x.read(nil)
	if len(starts) != 1 {
		t.Fatalf("%d starts, want 1", len(starts))
	}
	x.check(t, starts[0])
	if e.opened != nil || x.core.dispatches.files.bytes > 0 {
		t.Error("the file stays in memory")
	}
}

// The file of a job that starts at once is not read from disk.
func TestNewJobStartsWithoutARead(t *testing.T) {
	x := newFiled(t)
	x.tok++
	x.step(step.Submit{Token: x.tok, Submission: job.Submission{User: "amy", Spec: largeSpec(1)}})
	for id := range x.core.entries.byID {
		x.specs[id] = largeSpec(1)
	}
	starts := append(x.answer(), x.read(errors.New("the disk was read"))...)
	if len(starts) != 1 {
		t.Fatalf("%d starts, want 1", len(starts))
	}
	x.check(t, starts[0])
}

func TestArrayReadsItsFileOnce(t *testing.T) {
	x := newFiled(t)
	s := largeSpec(1)
	s.EachLine = []string{"one", "two", "three", "four", "five", "six"}
	id := x.submit(s)
	x.release(id)
	starts := append(x.answer(), x.read(nil)...)
	if len(starts) != len(s.EachLine) {
		t.Fatalf("%d starts, want %v", len(starts), len(s.EachLine))
	}
	for _, m := range starts {
		x.check(t, m)
		if m.Element.Entry != s.EachLine[m.Attempt.Task] {
			t.Errorf("%s has the line %q, want %v", m.Attempt, m.Element.Entry, s.EachLine[m.Attempt.Task])
		}
	}
}

func TestGangWaitsForItsFile(t *testing.T) {
	x := &filed{bench: newBench(t, 0, 0), disk: statetest.Disk{}, specs: map[job.ID]job.Spec{}}
	x.keep = true
	x.gangHosts(2, 4)
	s := largeSpec(1)
	s.Nodes = 2
	id := x.submit(s)
	x.release(id)
	if starts := x.answer(); len(starts) > 0 {
		t.Fatal("it started before its file was read")
	}
	starts := x.read(nil)
	if len(starts) != 2 {
		t.Fatalf("%d starts, want 2", len(starts))
	}
	for _, m := range starts {
		x.check(t, m)
	}
}

// A lost or damaged file ends its job with the reason, and no other job.
func TestDamagedFileEndsOnlyItsJob(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"missing": func([]byte) []byte { return nil },
		"changed": func(text []byte) []byte { return append([]byte("x"), text...) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newFiled(t)
			bad, good := x.submit(largeSpec(1)), x.submit(largeSpec(2))
			x.disk[bad][job.PartFile] = spoil(x.disk[bad][job.PartFile])
			x.release(bad)
			x.release(good)
			starts := append(x.answer(), x.read(nil)...)
			if len(starts) != 1 || starts[0].Attempt.Job != good {
				t.Fatalf("starts %v, want 1 of them and [0].Attempt.Job %v", starts, good)
			}
			j, _ := x.core.View().Job(bad)
			if j.State() != job.Cancelled || !strings.Contains(j.Reason.Detail, "job file on disk is missing or damaged; submit it again") {
				t.Errorf(`the job is %s: %s, want %v and Detail "job file on disk is missing or damaged; submit it again" in it`, j.State(), j.Reason, job.Cancelled)
			}
			if x.core.assigned.busy("w0") && x.core.assigned.busy("w1") {
				t.Error("its place is not given back")
			}
		})
	}
}

// A disk that fails for a while delays the job and does not end it.
func TestFailedReadOfAFileIsRepeated(t *testing.T) {
	x := newFiled(t)
	id := x.submit(largeSpec(1))
	x.release(id)
	x.answer()
	if starts := x.read(errors.New("input/output error")); len(starts) > 0 {
		t.Fatalf("starts %v, want none", starts)
	}
	j, _ := x.core.View().Job(id)
	if j.State() != job.Pending || !strings.Contains(j.Reason.Detail, "input/output error") {
		t.Fatalf(`the job is %s: %s, want %v and Detail "input/output error" in it`, j.State(), j.Reason, job.Pending)
	}
	x.now = x.now.Add(retryMost)
	x.step(step.Tick{})
	starts := append(x.answer(), x.read(nil)...)
	if len(starts) != 1 {
		t.Fatalf("%d starts, want 1", len(starts))
	}
	x.check(t, starts[0])
}

// However many large jobs start, few of their files are in memory, and even fewer are read at once.
func TestFilesInMemoryAreBounded(t *testing.T) {
	x := &filed{bench: newBench(t, 200, 4), disk: statetest.Disk{}, specs: map[job.ID]job.Spec{}}
	x.keep = true
	fs := x.core.dispatches.files
	var ids []job.ID
	for i := range 120 {
		s := largeSpec(i)
		s.EachLine = []string{"one", "two"} // so that the file is kept for the next task
		ids = append(ids, x.submit(s))
	}
	for _, id := range ids {
		x.release(id)
	}
	starts := len(x.answer())
	for len(x.files) > 0 {
		if fs.reading > maxReading || len(x.files) > maxReads || fs.bytes > maxOpened {
			t.Fatalf("%d files of %d bytes are read, %d bytes are in memory, want at most %v, at most %v and at most %v", len(x.files), fs.reading, fs.bytes, maxReading, maxReads, maxOpened)
		}
		f := x.files[0]
		x.files = x.files[1:]
		x.step(ReadFile(f, func(id job.ID) ([]byte, error) { return x.disk.File(id), nil }))
		starts += len(x.answer())
	}
	if starts != 2*len(ids) || fs.bytes == 0 || fs.reading != 0 || fs.reads != 0 {
		t.Errorf("%d starts; %d bytes in memory, %d being read, want two of each job, none being read", starts, fs.bytes, fs.reading)
	}
	for _, e := range x.core.entries.byID {
		if e.job.File.Text() != nil {
			t.Errorf("the text of %s stays in memory", e.job.ID)
		}
	}
}

// After a restart a job starts with its file from disk, with rows of this version and of the version before.
func TestJobStartsWithItsFileAfterARestart(t *testing.T) {
	x := newFiled(t)
	id := x.submit(largeSpec(1))
	old := statetest.RowsOf(job.Job{ID: job.NewID(7, 99), User: "amy", Spec: largeSpec(2), Submitted: storyStart, Tasks: []job.Task{{State: job.Held}}})
	x.disk.Save(old, nil)
	x.specs[old[0].Job] = largeSpec(2)
	saved := Saved{Applied: x.index}
	saved.load(t, x.disk)
	if len(saved.Moved(false)) > 0 {
		t.Error("small rows are moved to rows of their own")
	}
	x.disk.Save(saved.Moved(true), nil)
	cfg := x.core.turn.Config
	cfg.Seed = 2
	y := &filed{bench: &bench{core: NewCore(cfg, saved, storyStart), now: storyStart, index: x.index, keep: true}, disk: x.disk, specs: x.specs}
	for _, e := range y.core.entries.byID {
		if e.job.File == nil || e.job.File.Text() != nil {
			t.Fatalf("the file of %s is in memory", e.job.ID)
		}
	}
	y.index++
	y.step(step.Committed{Committed: job.Committed{Index: y.index, Epoch: job.Epoch{Term: 1}, Lead: true}})
	y.addHosts(2, 4)
	y.release(id)
	y.release(old[0].Job)
	starts := append(y.answer(), y.read(nil)...)
	if len(starts) != 2 {
		t.Fatalf("%d starts, want 2", len(starts))
	}
	for _, s := range starts {
		y.check(t, s)
	}
}

// A large job file is compared by digest with that of an earlier submission with the same key.
func TestSameKeyOfALargeJobIsComparedByDigest(t *testing.T) {
	x := newFiled(t)
	first := x.submitKey(largeSpec(1))
	if id := x.submitKey(largeSpec(1)); id != first || id == "" {
		t.Errorf("the same job was submitted again as %s, want the id of the first submission", id)
	}
	if id := x.submitKey(largeSpec(2)); id != "" {
		t.Errorf("another job has the same key: %s, want none", id)
	}
}

// submitKey submits with a key, and returns the id in the answer, or none if the submission is refused.
func (x *filed) submitKey(spec job.Spec) (id job.ID) {
	spec.Hold = true
	x.tok++
	fx := x.core.Step(x.now, step.Submit{Token: x.tok, Submission: job.Submission{User: "amy", Key: "k", Spec: spec}})
	for {
		for _, r := range fx.Reply {
			id = r.Job.ID
		}
		x.took(step.Effects{Rows: fx.Rows})
		if len(fx.Propose) == 0 {
			x.save()
			return id
		}
		x.index++
		fx = x.core.Step(x.now, step.Committed{Committed: job.Committed{Index: x.index, Epoch: job.Epoch{Term: 1}, Records: fx.Propose}})
	}
}
