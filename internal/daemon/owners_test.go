package daemon

// The owner of a group.

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/journal"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/worker/resources"
)

func TestGroupHasTheOwnerThatRunsIt(t *testing.T) {
	var s owners
	if s.of(1) != nil {
		t.Error("a daemon that owns no group has an owner")
	}
	before, own := &owner{}, &owner{}
	s.add(1, before)
	s.add(2, own)
	if s.of(1) != before || s.of(2) != own || s.home != own {
		t.Errorf("owners: got %+v, want one for each group", s)
	}
	if s.of(3) != own {
		t.Error("the owner of the home group does not answer for a group that this daemon does not own")
	}
}

// nobodyOwns ignores what a journal delivers.
type nobodyOwns struct{}

func (nobodyOwns) Deliver(job.Committed)           {}
func (nobodyOwns) NotProposed([]job.Record, error) {}
func (nobodyOwns) Deposed(job.Epoch)               {}

// The data directory of a version that had large job files in the headers is converted while its rows are read. A
// second start finds nothing to convert, and the files are removed with their jobs.
func TestDataDirectoryOfAnOlderVersionIsConverted(t *testing.T) {
	cfg := store.DefaultConfig()
	cfg.Dir, cfg.FS = "/data", storetest.Disk()
	disk, err := store.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	open := func() *journal.Journal {
		t.Helper()
		j, err := journal.New(journal.DefaultConfig(), disk, disk.Group(), nobodyOwns{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	first := open()
	const n = 12
	specs := map[job.ID]job.Spec{}
	for i := range n {
		s := job.DefaultSpec()
		s.Script = "#!/bin/sh\n" + strings.Repeat(string(rune('a'+i)), 800<<10)
		id := job.NewID(disk.Group(), uint64(i+1))
		specs[id] = s
		old := statetest.RowsOf(job.Job{ID: id, User: "amy", Spec: s, Tasks: []job.Task{{State: job.Held}}})
		if err := first.Save(journal.Saved(first), old, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		j := open()
		saved, err := load(j)
		if err != nil {
			t.Fatal(err)
		}
		if left := saved.Moved(true); len(left) > 0 {
			t.Errorf("got %d rows to convert, want 0", len(left))
		}
		for id, want := range specs {
			rows, err := j.Rows(id, "", "")
			if err != nil || len(rows) == 0 || len(rows[0].Data) > 2000 {
				t.Fatalf("%s has %d rows (%v), want that the first has no script", id, len(rows), err)
			}
			text, err := j.File(id)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := state.DecodeFile(text); err != nil || got.Script != want.Script {
				t.Errorf("the file of %s differs (%v), want got.Script = %v", id, err, want.Script)
			}
		}
	}
	last := open()
	for id := range specs {
		if err := last.Save(journal.Saved(last), nil, []job.ID{id}); err != nil {
			t.Fatal(err)
		}
		if text, err := last.File(id); text != nil || err != nil {
			t.Errorf("the file of a purged job: got %d bytes (%v), want none", len(text), err)
		}
	}
}

// Settings change the default limits one by one.
func TestBacklogSettingsChangeSingleLimits(t *testing.T) {
	l, err := resources.ParseLimits(map[string]string{
		"per_user.pending_jobs": "50", "users.ada.pending_bytes": "1MiB", "all.pending_jobs": "500", "users.bob.gpus": "1",
	})
	if err != nil {
		t.Fatal(err)
	}
	b, d := backlogOf(l), backlog.DefaultLimits()
	if b.PerUser != (backlog.Amount{Jobs: 50, Bytes: d.PerUser.Bytes}) || b.All != (backlog.Amount{Jobs: 500, Bytes: d.All.Bytes}) ||
		b.Users["ada"] != (backlog.Amount{Jobs: 50, Bytes: 1 << 20}) || b.Users["bob"] != b.PerUser {
		t.Errorf("limits: got %+v, want the settings and else the defaults", b)
	}
	for _, bad := range []string{"all.gpus", "all.tasks", "pending_jobs", "per_user.pending"} {
		if err := CheckLimit(bad, "1"); err == nil {
			t.Errorf("%s was accepted as a limit, want an error", bad)
		}
	}
	for name, value := range map[string]string{"per_user.pending_jobs": "-1", "all.pending_bytes": "many"} {
		if err := CheckLimit(name, value); err == nil {
			t.Errorf("%s=%s was accepted as a limit, want an error", name, value)
		}
	}
}
