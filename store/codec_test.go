package store

// What is written is what is read, for every kind of record and any bytes.

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
)

// anyText is what processes print: not all of it UTF-8.
var anyText = rapid.Custom(func(t *rapid.T) string {
	if rapid.Bool().Draw(t, "binary") {
		return string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"))
	}
	return rapid.String().Draw(t, "text")
})

var anyTime = rapid.Custom(func(t *rapid.T) time.Time {
	return timeOf(rapid.Int64Range(0, 1<<62).Draw(t, "ns"))
})

var anyID = rapid.Custom(func(t *rapid.T) job.ID {
	return job.NewID(job.Group(rapid.Uint64().Draw(t, "group")), rapid.Uint64().Draw(t, "drawn"))
})

var anyAttempt = rapid.Custom(func(t *rapid.T) job.Attempt {
	return job.Attempt{
		Job: anyID.Draw(t, "job"), Task: rapid.IntRange(0, job.MaxTasks-1).Draw(t, "task"),
		N: rapid.IntRange(1, job.MaxAttempts).Draw(t, "n"),
	}
})

var anyEpoch = rapid.Custom(func(t *rapid.T) job.Epoch {
	return job.Epoch{Generation: rapid.Uint64().Draw(t, "generation"), Term: rapid.Uint64().Draw(t, "term")}
})

// anyWords has nil and not an empty slice where there are none.
var anyWords = rapid.Custom(func(t *rapid.T) []string {
	return append([]string(nil), rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "words")...)
})

var anyResources = rapid.Custom(func(t *rapid.T) job.Resources {
	return job.Resources{
		CPUs: rapid.IntRange(0, job.MaxCPUs).Draw(t, "cpus"), Memory: job.Size(rapid.Int64Range(0, 1<<50).Draw(t, "memory")),
		GPUs: rapid.IntRange(0, job.MaxGPUs).Draw(t, "gpus"), GPUModel: rapid.String().Draw(t, "model"),
		GPUMemory: job.Size(rapid.Int64Range(0, 1<<50).Draw(t, "gpu_memory")), GPUShare: rapid.Float64Range(0, 1).Draw(t, "share"),
	}
})

var anySpec = rapid.Custom(func(t *rapid.T) job.Spec {
	s := job.Spec{
		Name: rapid.String().Draw(t, "name"), Command: anyWords.Draw(t, "command"), Script: rapid.String().Draw(t, "script"),
		Resources: anyResources.Draw(t, "resources"), Priority: rapid.IntRange(0, 100).Draw(t, "priority"),
		Requeue: rapid.Bool().Draw(t, "requeue"), TimeLimit: job.Duration(rapid.Int64Range(0, 1<<55).Draw(t, "limit")),
		NodeList: anyWords.Draw(t, "nodes"), Hold: rapid.Bool().Draw(t, "hold"), Retries: rapid.IntRange(0, 9).Draw(t, "retries"),
	}
	if rapid.Bool().Draw(t, "env") {
		s.Env = map[string]string{"A": rapid.String().Draw(t, "value")}
	}
	return s
})

var anyExit = rapid.Custom(func(t *rapid.T) job.Exit {
	return job.Exit{
		State: rapid.SampledFrom([]job.State{job.Succeeded, job.Failed, job.Timeout}).Draw(t, "state"),
		Code:  rapid.IntRange(-1, 255).Draw(t, "code"), Signal: rapid.IntRange(0, 64).Draw(t, "signal"),
		Reason: anyText.Draw(t, "reason"), Started: rapid.Bool().Draw(t, "started"),
		Began: anyTime.Draw(t, "began"), Ended: anyTime.Draw(t, "ended"), Tail: anyText.Draw(t, "tail"), Isolation: anyText.Draw(t, "isolation"),
	}
})

var anyRecord = rapid.Custom(func(t *rapid.T) (r job.Record) {
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		r = job.SubmitRecord{
			Job: anyID.Draw(t, "job"), User: anyText.Draw(t, "user"), Spec: anySpec.Draw(t, "spec"),
			Key: anyText.Draw(t, "key"), At: anyTime.Draw(t, "at"),
		}
	case 1:
		r = job.AssignRecord{
			Attempt: anyAttempt.Draw(t, "attempt"), Node: job.Peer(anyText.Draw(t, "node")),
			NodeName: anyText.Draw(t, "name"), Store: anyText.Draw(t, "store"),
		}
	case 2:
		r = job.UnassignRecord{
			Attempt: anyAttempt.Draw(t, "attempt"), Proof: job.ProofDead, Detail: anyText.Draw(t, "detail"),
			At: anyTime.Draw(t, "at"), Hold: anyText.Draw(t, "hold"),
		}
	case 3:
		r = job.ResultRecord{
			Attempt: anyAttempt.Draw(t, "attempt"), Devices: anyWords.Draw(t, "devices"), Exit: anyExit.Draw(t, "exit"),
			At: anyTime.Draw(t, "at"), Hold: anyText.Draw(t, "hold"),
		}
	case 4:
		r = job.CancelRecord{Job: anyID.Draw(t, "job"), Reason: anyText.Draw(t, "reason"), At: anyTime.Draw(t, "at")}
	case 5:
		r = job.HoldRecord{Job: anyID.Draw(t, "job"), Release: rapid.Bool().Draw(t, "release"), Reason: anyText.Draw(t, "reason")}
	case 6:
		r = job.PurgeRecord{Job: anyID.Draw(t, "job")}
	}
	return r
})

var anyTask = rapid.Custom(func(t *rapid.T) job.Task {
	task := job.Task{
		Index: rapid.IntRange(0, 9).Draw(t, "index"), State: job.Running, Reason: job.Reason{Word: anyText.Draw(t, "word"), Detail: anyText.Draw(t, "detail")},
		Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Node: job.Peer(anyText.Draw(t, "node")), NodeName: anyText.Draw(t, "name"),
		Store: anyText.Draw(t, "store"), Epoch: anyEpoch.Draw(t, "epoch"), Devices: anyWords.Draw(t, "devices"), PID: rapid.Int().Draw(t, "pid"),
		Assigned: rapid.Bool().Draw(t, "assigned"), Runs: rapid.IntRange(0, 9).Draw(t, "runs"),
		Started: anyTime.Draw(t, "started"), Ended: anyTime.Draw(t, "ended"), Closed: anyTime.Draw(t, "closed"),
	}
	for _, p := range anyWords.Draw(t, "lost") {
		task.Lost = append(task.Lost, job.Peer(p))
	}
	if rapid.Bool().Draw(t, "ended") {
		e := anyExit.Draw(t, "exit")
		task.Exit = &e
	}
	return task
})

var anyHeld = rapid.Custom(func(t *rapid.T) lease.Record {
	r := lease.Record{
		Attempt: anyAttempt.Draw(t, "attempt"), Group: job.Group(rapid.Uint64().Draw(t, "group")), Epoch: anyEpoch.Draw(t, "epoch"),
		Session: lease.Session(rapid.Uint64().Draw(t, "session")), Owner: job.Peer(anyText.Draw(t, "owner")),
		Phase: rapid.SampledFrom([]lease.Phase{lease.PhaseReserved, lease.PhaseStarted, lease.PhaseDone, lease.PhaseRefused}).Draw(t, "phase"),
		Offer: rapid.Uint64().Draw(t, "offer"), User: anyText.Draw(t, "user"), Need: anyResources.Draw(t, "need"),
		Devices: anyWords.Draw(t, "devices"), Milli: rapid.IntRange(0, 1000).Draw(t, "milli"), Spec: anySpec.Draw(t, "spec"),
		Lease: time.Duration(rapid.Int64().Draw(t, "lease")), Hold: rapid.Bool().Draw(t, "hold"), Boot: anyText.Draw(t, "boot"),
		PID: rapid.Int().Draw(t, "pid"), Started: anyTime.Draw(t, "started"), EventN: rapid.Uint64().Draw(t, "event"),
		AckedN: rapid.Uint64().Draw(t, "acked"), Reason: anyText.Draw(t, "reason"), Recorded: anyTime.Draw(t, "recorded"),
	}
	if rapid.Bool().Draw(t, "exit") {
		e := anyExit.Draw(t, "exit")
		r.Exit = &e
	}
	return r
})

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(anyRecord, 1, 4).Draw(t, "records")
		data := appendGeneration(nil, 7)
		for _, r := range records {
			var err error
			if data, err = appendRecord(data, r); err != nil {
				t.Fatal(err)
			}
		}
		generation, got, err := decodeEntry(data)
		if err != nil || generation != 7 || !reflect.DeepEqual(got, records) {
			t.Fatalf("got %d, %+v, %v\nwant %+v", generation, got, err, records)
		}
	})
}

func TestRowsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := job.Job{
			ID: anyID.Draw(t, "id"), User: anyText.Draw(t, "user"), Spec: anySpec.Draw(t, "spec"), Owner: job.Peer(anyText.Draw(t, "owner")),
			Submitted: anyTime.Draw(t, "submitted"), Key: anyText.Draw(t, "key"), Cancelled: anyText.Draw(t, "cancelled"), Seq: rapid.Uint64().Draw(t, "seq"),
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
	if s, err := decodeSpec(b); err != nil || !reflect.DeepEqual(s, job.Spec{}) {
		t.Errorf("an empty spec became %+v, %v", s, err)
	}
}

// FuzzDecodeEntry: what can be read can be written again, and read as the same.
func FuzzDecodeEntry(f *testing.F) {
	g := job.Group(1)
	data := appendGeneration(nil, 1)
	for _, r := range []job.Record{submit(g, 1), cancel(g, 2), job.PurgeRecord{Job: job.NewID(g, 3)}} {
		data, _ = appendRecord(data, r)
	}
	f.Add(data)
	f.Add(data[:len(data)-3])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		generation, records, err := decodeEntry(data)
		if err != nil {
			return
		}
		again := appendGeneration(nil, generation)
		for _, r := range records {
			if again, err = appendRecord(again, r); errors.Is(err, ErrTooLarge) {
				return
			} else if err != nil {
				t.Fatalf("read %+v, which cannot be written: %v", r, err)
			}
		}
		g2, records2, err := decodeEntry(again)
		if err != nil || g2 != generation || !reflect.DeepEqual(records2, records) {
			t.Fatalf("read %+v, then %+v, %v", records, records2, err)
		}
	})
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
