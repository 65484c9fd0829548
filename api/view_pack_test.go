package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// A running job takes an eighth of its two documents, and the events of its start a seventh.
func TestPackedRowsAndEventsAreSmall(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	p := fedPeer(123)
	m := &viewMember{Member: Member{Peer: p}, shelf: view.NewShelf(), sight: &seen{}}
	w.members[p] = m
	plain, packed := 0, 0
	for n := range 100 {
		j := fedJob(p, n)
		w.apply(m, &feedLine{Job: &j})
		r := m.shelf.Get(j.ID)
		packed += len(r.Packed)
		plain += len(w.packer.Append(nil, r.Packed, false)) + len(w.packer.Append(nil, r.Packed, true))
	}
	if packed > plain/8 {
		t.Errorf("100 rows of %d bytes take %d, want at most %d", plain, packed, plain/8)
	}
	plain, packed = 0, 0
	events, _, _ := w.ring.After(0, maxEvents)
	for _, e := range events {
		packed += len(e.frame)
		plain += len(w.packer.Append(nil, e.frame, false)) + len(w.packer.Append(nil, e.frame, true))
	}
	if len(events) != 200 || packed > plain/7 {
		t.Errorf("got %d events of %d bytes that take %d, want 200 that take at most %d", len(events), plain, packed, plain/7)
	}
}

// pieces is a client that records the sizes of what is written to it.
type pieces struct {
	http.ResponseWriter
	all []string
}

func (p *pieces) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	return len(b), nil
}

// Large events are unpacked some at a time, also if all of them wait. Nothing is lost, and the order is kept.
func TestLargeEventsAreWrittenInPieces(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	for n := range eventBatch {
		w.tell(&change{viewEvent: viewEvent{kind: EventSilent}, detail: strconv.Itoa(n) + strings.Repeat("x", 60<<10)})
	}
	client := &pieces{ResponseWriter: httptest.NewRecorder()}
	s := clusterStream{clusterView: w, filter: &eventFilter{}, w: client, flush: func() error { return nil }, alive: time.NewTimer(time.Hour)}
	n, next, err := s.batch(0, false)
	if n != eventBatch || next != eventBatch || err != nil {
		t.Fatalf("got %d events, next %d, %v, want %d, %d", n, next, err, eventBatch, eventBatch)
	}
	for _, piece := range client.all {
		if len(piece) > maxEventWrite+(64<<10) {
			t.Errorf("got %d bytes unpacked at once, want at most %d", len(piece), maxEventWrite+(64<<10))
		}
	}
	text := strings.Join(client.all, "")
	at := 0
	for n := range eventBatch {
		i := strings.Index(text[at:], `"detail":"`+strconv.Itoa(n)+"x")
		if i < 0 {
			t.Fatalf("event %d is missing, want i at least 0", n)
		}
		at += i
	}
}

// Documents of a member that pack to nearly nothing do not make readers receive gigabytes.
func TestEmptyEventsFillTheRing(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	doc := []byte(`"` + strings.Repeat("x", maxFeedJob) + `"`)
	for range maxEvents {
		w.tell(&change{viewEvent: viewEvent{kind: EventJob}, field: "job", doc: doc, more: doc})
	}
	events, _, _ := w.ring.After(0, maxEvents)
	sent, packed := 0, 0
	for _, e := range events {
		sent += view.Length(e.frame)
		packed += len(e.frame)
	}
	if sent > 128<<20 || sent < 115<<20 || packed > 1<<20 {
		t.Errorf("%d events: got %d bytes, packed %d, want 115 to 128 MiB, packed at most 1 MiB", len(events), sent, packed)
	}
}

// A job whose document is much larger as JSON than it was when received is not kept; its owner is asked for it.
func TestEscapedRowIsNotKept(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	p := fedPeer(1)
	m := &viewMember{Member: Member{Peer: p}, shelf: view.NewShelf(), sight: &seen{}}
	w.members[p] = m
	j := fedJob(p, 1)
	w.apply(m, &feedLine{Job: &j})
	big := fedJob(p, 1)
	big.ReasonDetail = strings.Repeat("<", maxFeedJob-2000)
	w.apply(m, &feedLine{Job: &big})
	if r := m.shelf.Get(j.ID); r != nil || m.shelf.Size() != 0 || m.shelf.From(nil).ID != j.ID {
		t.Errorf("it is kept: got %d bytes, missing from %v, want 0", m.shelf.Size(), m.shelf.From(nil))
	}
}

// Large listings are complete, and a missing document does not spoil one.
func TestLargeListingIsComplete(t *testing.T) {
	p := view.NewPacker(typicalText())
	doc := itemText{packed: p.Pack([]byte(`{"a":"`+strings.Repeat("x", 64<<10)+`"}`), nil), packer: p}
	lost := itemText{packed: []byte{1}, packer: p}
	var l listing
	for range 600 {
		l.items = append(l.items, item{itemText: doc}, item{itemText: doc, aged: true})
	}
	l.items = append(l.items, item{itemText: lost}, item{itemText: lost, aged: true})
	var got Listing[struct{ A string }]
	if err := json.Unmarshal(l.answer(&ListingInput{}).Body, &got); err != nil || len(got.Items) != 1202 {
		t.Fatalf("got %d items, %v, want 1202", len(got.Items), err)
	}
	for i, x := range got.Items[:1200] {
		if len(x.A) != 64<<10 {
			t.Fatalf("item %d: got %d bytes, want 64 KiB", i, len(x.A))
		}
	}
}

// Names are shared while they are in use, however many there were.
func TestNamesInUseAreShared(t *testing.T) {
	x := newPacks()
	first := one(x, strings.Clone("amy"))
	if again := one(x, strings.Clone("amy")); unsafe.StringData(again) != unsafe.StringData(first) {
		t.Error("the same name is stored twice")
	}
	for n := range 3 * maxNames {
		one(x, strconv.Itoa(n))
	}
	if long := strings.Repeat("x", maxName+1); one(x, long) != long || len(x.names) > maxNames {
		t.Errorf("got %d names, want at most %d", len(x.names), maxNames)
	}
}

// The same rows have the same ETag, and others have another one, also for those who may see more.
func TestETagChangesWithTheRows(t *testing.T) {
	p := view.NewPacker(typicalText())
	j := fedJob(fedPeer(1), 1)
	one := itemText{packed: p.Pack(textOf(&j), []byte(`{"a":1}`)), packer: p}
	again := itemText{packed: p.Pack(textOf(&j), []byte(`{"a":1}`)), packer: p}
	more := one
	more.more = true
	j.State = job.Failed
	other := itemText{packed: p.Pack(textOf(&j), []byte(`{"a":1}`)), packer: p}
	tag := func(x itemText) string {
		l := listing{items: []item{{itemText: x}}}
		return l.answer(&ListingInput{}).ETag
	}
	if tag(one) != tag(again) || tag(one) == tag(more) || tag(one) == tag(other) {
		t.Errorf("got %s, %s again, %s with more, %s of another, want the first two equal and the others different", tag(one), tag(again), tag(more), tag(other))
	}
	if plain := (itemText{text: one.appendTo(nil)}); tag(plain) != tag(one) {
		t.Errorf("got %s, want %s, the tag of the same packed document", tag(plain), tag(one))
	}
	x := item{itemText: more, aged: true}
	if got := x.appendTo([]byte("["), nil); string(got) != `[{"age":0.000,"a":1}` {
		t.Errorf("with its age: got %s, want the age first", got)
	}
}
