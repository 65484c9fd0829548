package state_test

// Large job files are on disk, apart from the other rows.

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/statetest"
)

// largeSpec has a script of 900 KB, and lines.
func largeSpec() job.Spec {
	s := job.DefaultSpec()
	s.Name, s.Script, s.Constraint = "large", "#!/bin/sh\n"+strings.Repeat("# work\n", 130_000), "rack=r1"
	s.Env, s.EachLine, s.Array = map[string]string{"A": "b"}, []string{"one", "two", "three"}, "%2"
	return s
}

func submitted(t *testing.T, s job.Spec) *state.Job {
	t.Helper()
	l, err := s.Layout()
	if err != nil {
		t.Fatal(err)
	}
	c := state.NewTable(group).Apply(job.SubmitRecord{Job: id(1), User: "amy", Spec: s, At: start, Tasks: l.Tasks()}, 1, job.Epoch{})
	return c.Job
}

func take(t *testing.T, j *state.Job) []job.Row {
	t.Helper()
	rows, err := j.TakeRows()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestLargeJobFileIsOnDiskOnly(t *testing.T) {
	spec := largeSpec()
	j := submitted(t, spec)
	if j.File.Text() == nil {
		t.Fatal("the file is neither in memory nor on disk")
	}
	j.File.Drop()
	if j.File.Text() == nil {
		t.Fatal("the file was dropped from memory before it was saved")
	}
	disk := statetest.Disk{}
	disk.Save(take(t, j), nil)
	j.File.Drop()
	if j.File.Text() != nil || j.Spec.Script != "" || len(j.Spec.Env)+len(j.Spec.EachLine) > 0 || j.Spec.Constraint != spec.Constraint {
		t.Errorf("%d bytes of the file and the spec %+.200v are in memory, want neither", len(j.File.Text()), j.Spec)
	}
	rows := disk.Rows(j.ID, "", "")
	if n := len(rows[0].Data); n > 2000 {
		t.Errorf("the header has %d bytes, want at most 2000", n)
	}
	if got, err := state.OpenFile(j.File.Digest(), disk.File(j.ID)); err != nil || !reflect.DeepEqual(got, spec) {
		t.Errorf("the file on disk is not the submitted one (%v)", err)
	}
	again, err := state.Decode(rows)
	if err != nil || !reflect.DeepEqual(again.View(0, 9), j.View(0, 9)) || again.File.Size() != j.File.Size() {
		t.Fatalf("decoded %+v, %v", again, err)
	}
	if more := take(t, again); len(more) > 0 {
		t.Errorf("a job that was read has %d rows to save, want none", len(more))
	}
	whole, err1 := spec.Layout()
	lean, err2 := again.Spec.Layout()
	if errors.Join(err1, err2) != nil || !reflect.DeepEqual(whole, lean) {
		t.Errorf("the tasks of the lean job are numbered %+v, want %+v", lean, whole)
	}
}

// A damaged or missing row is not a job file.
func TestDamagedJobFileIsAnError(t *testing.T) {
	j := submitted(t, largeSpec())
	text := j.File.Text()
	damaged := append([]byte{}, text...)
	damaged[len(text)/2] ^= 1
	for name, text := range map[string][]byte{"missing": nil, "cut": text[:len(text)-1], "changed": damaged} {
		if _, err := state.OpenFile(j.File.Digest(), text); !errors.Is(err, state.ErrDamaged) {
			t.Errorf("%s: %v, want state.ErrDamaged", name, err)
		}
	}
}

// Small job files, the usual case, stay in the header.
func TestSmallJobFileStaysInMemory(t *testing.T) {
	s := job.DefaultSpec()
	s.Script = "#!/bin/sh\n" + strings.Repeat("#", job.MaxBulk-100)
	j := submitted(t, s)
	if j.File != nil || len(take(t, j)) != 1 || j.View(0, 1).Lean {
		t.Errorf("a script of %d bytes has a row of its own", len(s.Script))
	}
}

// In rows of older versions the header contains the whole file. The file gets a row of its own.
func TestJobFileOfAnOlderVersionGetsItsOwnRow(t *testing.T) {
	spec := largeSpec()
	var tasks []job.Task
	for i := range 3 {
		tasks = append(tasks, job.Task{Index: i, State: job.Held})
	}
	old := statetest.RowsOf(job.Job{ID: id(1), User: "amy", Spec: spec, Submitted: start, Tasks: tasks})
	j, err := state.Decode(old)
	if err != nil || !j.View(0, 1).Lean {
		t.Fatalf("decoded: %v, want no error and a lean job", err)
	}
	disk := statetest.Disk{}
	disk.Save(old, nil)
	disk.Save(take(t, j), nil)
	if n := len(disk.Rows(j.ID, "", "")[0].Data); n > 2000 {
		t.Errorf("the header has %d bytes, want at most 2000", n)
	}
	if got, err := state.OpenFile(j.File.Digest(), disk.File(j.ID)); err != nil || !reflect.DeepEqual(got, spec) {
		t.Errorf("the file on disk is not the submitted one (%v)", err)
	}
	again, err := state.Decode(disk.Rows(j.ID, "", ""))
	if err != nil || again.Counts() != j.Counts() || again.Len() != 3 {
		t.Errorf("decoded %+v, %v, want no error, Counts() %v and Len() 3", again, err, j.Counts())
	}
}
