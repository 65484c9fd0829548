package journal

// The journal reads a data directory of an older release.

import (
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/worker/ledger"
)

// oldDirectory creates the data directory that testdata/directory.txt describes.
func oldDirectory(t *testing.T) *store.Store {
	t.Helper()
	text, err := os.ReadFile("testdata/directory.txt")
	if err != nil {
		t.Fatal(err)
	}
	fs := storetest.Disk()
	s := open(t, fs)
	err = s.WriteSync(func(b store.Batch) error {
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
			key, err := hex.DecodeString(k)
			if err != nil {
				return err
			}
			val, err := hex.DecodeString(v)
			if err != nil {
				return err
			}
			if err := b.Set(key, val); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	return open(t, fs)
}

func TestDirectoryOfAnOlderReleaseIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := oldDirectory(t)
		defer closeStore(t, s)
		const g = job.Group(0x0123456789abcdef)
		at := func(n int64) time.Time { return time.Unix(1_700_000_000, n) }
		id := job.NewID(g, 1)
		attempt := job.Attempt{Job: id, N: 1}
		epoch := job.Epoch{Generation: 1, Term: 2}
		exit := job.Exit{
			State: job.Failed, Code: 3, Signal: 9, Reason: "r", Started: true, Began: at(5), Ended: at(6), Tail: "t\xff", Isolation: "i",
		}
		spec := submit(g, 1).Spec
		row := job.Job{
			ID: id, User: "amy", Spec: spec, Submitted: at(1), Key: "k", Cancelled: "c", Seq: 5,
			Tasks: []job.Task{{
				State: job.Failed, Reason: job.Reason{Word: "W", Detail: "d"}, Attempt: 1, Node: "p1", NodeName: "n1", Store: "s1",
				Epoch: epoch, Devices: []string{"g0"}, Assigned: true, Runs: 2, Started: at(5), Ended: at(6),
				Exit: &exit, Lost: []job.Peer{"p9"}, Closed: at(7),
			}},
		}
		row.Counts, row.Ends = job.CountsOf(row.Tasks), job.EndsOf(row.Tasks)
		file, err := job.NewFile(spec)
		if err != nil {
			t.Fatal(err)
		}
		held := contract.Record{
			Attempt: attempt, Group: g, Epoch: epoch, Session: 11, Owner: "p0", Phase: contract.PhaseDone, Offer: 12, User: "amy",
			Need: spec.Resources, Devices: []string{"g0"}, Milli: 500, File: file, Lease: time.Minute, Hold: true, Boot: "b", PID: 7,
			Started: at(5), Exit: &exit, EventN: 3, AckedN: 2, Reason: "r", Recorded: at(8), Preempted: true, Isolation: "i",
		}
		want := []job.Record{ // the Submit, entry 3, is in the row
			job.AssignRecord{Attempt: attempt, Node: "p1", NodeName: "n1", Store: "s1"},
			job.UnassignRecord{Attempt: attempt, Proof: job.ProofDead, Detail: "d", At: at(2), Hold: "h"},
			job.ResultRecord{Attempt: attempt, Devices: []string{"g0", "g1"}, Exit: exit, At: at(3), Hold: "h"},
			job.CancelRecord{Job: id, Reason: "enough", At: at(4)},
			job.HoldRecord{Job: id, Release: true, Reason: "go"},
			job.PurgeRecord{Job: job.NewID(g, 2)},
		}

		r := &recordingJournal{end: make(chan error, 1)}
		if r.Journal, err = New(DefaultConfig(), s, g, r, quiet); err != nil {
			t.Fatal(err)
		}
		rows, applied, err := load(r.Journal)
		if err != nil || applied != 3 {
			t.Fatalf("Load = %+v, %d, %v, want no error and 3", rows, applied, err)
		}
		if j, err := state.Decode(rows); err != nil || !reflect.DeepEqual(j.View(0, 1), row) {
			t.Errorf("the rows hold\n%+v, %v\nwant\n%+v", j.View(0, 1), err, row)
		}
		go func() { r.end <- r.Run(t.Context()) }()
		synctest.Wait()
		var got []job.Record
		for _, c := range r.delivered() {
			got = append(got, c.Records...)
			if len(c.Records) > 0 && c.Epoch != epoch {
				t.Errorf("entry %d has epoch %s, want that of the others", c.Index, c.Epoch)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("delivered %+v\nwant %+v", got, want)
		}
		if last := r.delivered()[len(want)]; !last.Lead || last.Epoch.Term != 3 {
			t.Errorf("the journal does not lead: %+v, want a Lead of term 3", last)
		}
		records, claims, err := ledger.New(s).Load()
		if err != nil || !reflect.DeepEqual(records, []contract.Record{held}) || len(claims) != 1 || claims[0] != (contract.Claim{Group: g, Epoch: epoch}) {
			t.Errorf("Load of the ledger = %+v, %v, %v, want the record and the claim", records, claims, err)
		}
		if v, err := s.Get("own"); err != nil || string(v) != "value" {
			t.Errorf(`Get = %q, %v, want no error and "value"`, v, err)
		}
	})
}
