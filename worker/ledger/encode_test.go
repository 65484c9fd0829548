package ledger

// Encoding and decoding return the same record of the ledger, for any text.

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

var anyHeld = rapid.Custom(func(t *rapid.T) contract.Record {
	r := contract.Record{
		Attempt: storetest.Attempt.Draw(t, "attempt"), Group: job.Group(rapid.Uint64().Draw(t, "group")), Epoch: storetest.Epoch.Draw(t, "epoch"),
		Session: contract.Session(rapid.Uint64().Draw(t, "session")), Owner: job.Peer(storetest.Text.Draw(t, "owner")),
		Phase: rapid.SampledFrom([]contract.Phase{contract.PhaseReserved, contract.PhaseStarted, contract.PhaseDone, contract.PhaseRefused}).Draw(t, "phase"),
		Offer: rapid.Uint64().Draw(t, "offer"), User: storetest.Text.Draw(t, "user"), Need: storetest.Resources.Draw(t, "need"),
		Devices: storetest.Words.Draw(t, "devices"), Milli: rapid.IntRange(0, 1000).Draw(t, "milli"), File: newFile(storetest.Spec.Draw(t, "spec")),
		Lease: time.Duration(rapid.Int64().Draw(t, "lease")), Hold: rapid.Bool().Draw(t, "hold"), Boot: storetest.Text.Draw(t, "boot"),
		PID: rapid.Int().Draw(t, "pid"), Started: storetest.Time.Draw(t, "started"), EventN: rapid.Uint64().Draw(t, "event"),
		AckedN: rapid.Uint64().Draw(t, "acked"), Reason: storetest.Text.Draw(t, "reason"), Recorded: storetest.Time.Draw(t, "recorded"),
	}
	r.Need.Exclusive = rapid.Bool().Draw(t, "exclusive")
	if rapid.Bool().Draw(t, "exit") {
		e := storetest.Exit.Draw(t, "exit")
		r.Exit = &e
	}
	if n := rapid.IntRange(0, 3).Draw(t, "gang"); n > 0 {
		r.Gang, r.Element.Rank = &contract.Gang{Port: rapid.IntRange(1, 65535).Draw(t, "port")}, rapid.IntRange(0, n-1).Draw(t, "rank")
		for range n {
			r.Gang.Members = append(r.Gang.Members, contract.Member{
				Node: job.Peer(storetest.Text.Draw(t, "node")), Name: storetest.Text.Draw(t, "name"), Address: storetest.Text.Draw(t, "address"),
			})
		}
	}
	return r
})

func newFile(s job.Spec) *job.File {
	f, err := job.NewFile(s)
	if err != nil {
		panic(err)
	}
	return f
}

func TestHeldRecordsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyHeld.Draw(t, "record")
		b, err := proto.Marshal(heldPB(&r))
		if err != nil {
			t.Fatal(err)
		}
		files := map[job.Digest]*job.File{r.File.Digest(): r.File}
		if got, err := decodeHeld(b, files); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("got %+v, %v\nwant %+v", got, err, r)
		}
	})
}

func FuzzDecodeHeld(f *testing.F) {
	file := newFile(job.Spec{Name: "x"})
	known := map[job.Digest]*job.File{file.Digest(): file}
	for _, x := range []*job.File{nil, file} {
		b, err := proto.Marshal(heldPB(&contract.Record{Attempt: job.Attempt{Job: job.NewID(1, 1), N: 1}, Phase: contract.PhaseDone, File: x, Element: contract.Element{Rank: 1}, Gang: &contract.Gang{Port: 1, Members: []contract.Member{{Node: "n"}, {Address: "::1"}}}}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeHeld(b, known)
		if err != nil {
			return
		}
		if heldPB(&r); r.Attempt.Valid() != nil {
			t.Fatalf("read %+v, want a valid attempt", r)
		}
	})
}
