package store

// What is written is what is read: rows of jobs and records of the ledger, and any bytes.

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/store/storepb"
	"github.com/musterhq/muster/store/storetest"
)

var anyTask = rapid.Custom(func(t *rapid.T) job.Task {
	task := job.Task{
		Index: rapid.IntRange(0, 9).Draw(t, "index"), State: job.Running, Reason: job.Reason{Word: storetest.Text.Draw(t, "word"), Detail: storetest.Text.Draw(t, "detail")},
		Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Node: job.Peer(storetest.Text.Draw(t, "node")), NodeName: storetest.Text.Draw(t, "name"),
		Store: storetest.Text.Draw(t, "store"), Epoch: storetest.Epoch.Draw(t, "epoch"), Devices: storetest.Words.Draw(t, "devices"), PID: rapid.Int().Draw(t, "pid"),
		Assigned: rapid.Bool().Draw(t, "assigned"), Runs: rapid.IntRange(0, 9).Draw(t, "runs"),
		Started: storetest.Time.Draw(t, "started"), Ended: storetest.Time.Draw(t, "ended"), Closed: storetest.Time.Draw(t, "closed"),
	}
	for _, p := range storetest.Words.Draw(t, "lost") {
		task.Lost = append(task.Lost, job.Peer(p))
	}
	if rapid.Bool().Draw(t, "ended") {
		e := storetest.Exit.Draw(t, "exit")
		task.Exit = &e
	}
	return task
})

var anyHeld = rapid.Custom(func(t *rapid.T) lease.Record {
	r := lease.Record{
		Attempt: storetest.Attempt.Draw(t, "attempt"), Group: job.Group(rapid.Uint64().Draw(t, "group")), Epoch: storetest.Epoch.Draw(t, "epoch"),
		Session: lease.Session(rapid.Uint64().Draw(t, "session")), Owner: job.Peer(storetest.Text.Draw(t, "owner")),
		Phase: rapid.SampledFrom([]lease.Phase{lease.PhaseReserved, lease.PhaseStarted, lease.PhaseDone, lease.PhaseRefused}).Draw(t, "phase"),
		Offer: rapid.Uint64().Draw(t, "offer"), User: storetest.Text.Draw(t, "user"), Need: storetest.Resources.Draw(t, "need"),
		Devices: storetest.Words.Draw(t, "devices"), Milli: rapid.IntRange(0, 1000).Draw(t, "milli"), Spec: storetest.Spec.Draw(t, "spec"),
		Lease: time.Duration(rapid.Int64().Draw(t, "lease")), Hold: rapid.Bool().Draw(t, "hold"), Boot: storetest.Text.Draw(t, "boot"),
		PID: rapid.Int().Draw(t, "pid"), Started: storetest.Time.Draw(t, "started"), EventN: rapid.Uint64().Draw(t, "event"),
		AckedN: rapid.Uint64().Draw(t, "acked"), Reason: storetest.Text.Draw(t, "reason"), Recorded: storetest.Time.Draw(t, "recorded"),
	}
	if rapid.Bool().Draw(t, "exit") {
		e := storetest.Exit.Draw(t, "exit")
		r.Exit = &e
	}
	return r
})

func TestRowsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := job.Job{
			ID: storetest.ID.Draw(t, "id"), User: storetest.Text.Draw(t, "user"), Spec: storetest.Spec.Draw(t, "spec"), Owner: job.Peer(storetest.Text.Draw(t, "owner")),
			Submitted: storetest.Time.Draw(t, "submitted"), Key: storetest.Text.Draw(t, "key"), Cancelled: storetest.Text.Draw(t, "cancelled"), Seq: rapid.Uint64().Draw(t, "seq"),
			Tasks: append([]job.Task(nil), rapid.SliceOfN(anyTask, 0, 2).Draw(t, "tasks")...),
		}
		m, err := jobPB(&j)
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeJob(b); err != nil || !reflect.DeepEqual(got, j) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, j)
		}
	})
}

func TestHeldRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyHeld.Draw(t, "record")
		m, err := heldPB(&r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeHeld(b); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, r)
		}
	})
}

// A need of no CPU is not the default of one.
func TestSpecKeepsItsZeroes(t *testing.T) {
	b, err := job.EncodeSpec(job.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := storepb.DecodeSpec(b); err != nil || !reflect.DeepEqual(s, job.Spec{}) {
		t.Errorf("an empty spec became %+v, %v", s, err)
	}
}

func FuzzDecodeJob(f *testing.F) {
	m, err := jobPB(&job.Job{ID: job.NewID(1, 1), Spec: job.DefaultSpec(), Tasks: []job.Task{{State: job.Pending}}})
	if err != nil {
		f.Fatal(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := decodeJob(b)
		if err != nil {
			return
		}
		again, err := jobPB(&j)
		if err != nil {
			t.Fatal(err)
		}
		b2, err := proto.MarshalOptions{Deterministic: true}.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		j2, err := decodeJob(b2)
		again2, err2 := jobPB(&j2)
		b3, err3 := proto.MarshalOptions{Deterministic: true}.Marshal(again2)
		if err := errors.Join(err, err2, err3); err != nil || !bytes.Equal(b2, b3) {
			t.Fatalf("%v: %x, then %x", err, b2, b3)
		}
	})
}

func FuzzDecodeHeld(f *testing.F) {
	m, err := heldPB(&lease.Record{Attempt: job.Attempt{Job: job.NewID(1, 1), N: 1}, Phase: lease.PhaseDone})
	if err != nil {
		f.Fatal(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeHeld(b)
		if err != nil {
			return
		}
		if _, err := heldPB(&r); err != nil || r.Attempt.Valid() != nil {
			t.Fatalf("read %+v: %v", r, err)
		}
	})
}
