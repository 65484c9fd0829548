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
func TestRowsAndEventsAreSmall(t *testing.T) {
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
		t.Errorf("100 rows of %d bytes take %d", plain, packed)
	}
	plain, packed = 0, 0
	events, _, _ := w.ring.After(0, maxEvents)
	for _, e := range events {
		packed += len(e.frame)
		plain += len(w.packer.Append(nil, e.frame, false)) + len(w.packer.Append(nil, e.frame, true))
	}
	if len(events) != 200 || packed > plain/7 {
		t.Errorf("%d events of %d bytes take %d", len(events), plain, packed)
	}
}

// pieces is a client that notes the sizes of what is written to it.
type pieces struct {
	http.ResponseWriter
	all []string
}

func (p *pieces) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	return len(b), nil
}

// Large events are unpacked some at a time, also if all of them wait. Nothing is lost, and the order stays.
func TestLargeEventsArePutInPieces(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	for n := range eventBatch {
		w.tell(&change{viewEvent: viewEvent{kind: EventSilent}, detail: strconv.Itoa(n) + strings.Repeat("x", 60<<10)})
	}
	client := &pieces{ResponseWriter: httptest.NewRecorder()}
	s := clusterStream{clusterView: w, filter: &eventFilter{}, w: client, flush: func() error { return nil }, alive: time.NewTimer(time.Hour)}
	n, next, err := s.batch(0, false)
	if n != eventBatch || next != eventBatch || err != nil {
		t.Fatalf("%d events, next %d, %v", n, next, err)
	}
	for _, piece := range client.all {
		if len(piece) > maxEventWrite+(64<<10) {
			t.Errorf("%d bytes are unpacked at once", len(piece))
		}
	}
	text := strings.Join(client.all, "")
	at := 0
	for n := range eventBatch {
		i := strings.Index(text[at:], `"detail":"`+strconv.Itoa(n)+"x")
		if i < 0 {
			t.Fatalf("event %d is missing", n)
		}
		at += i
	}
}

// A member that tells what can be packed to nearly nothing does not have readers sent gigabytes.
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
		t.Errorf("%d events of %d bytes, packed %d", len(events), sent, packed)
	}
}

// A job whose document JSON makes much larger than it was told is not kept: its owner is asked for it.
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
		t.Errorf("it is kept: %d bytes, missing from %v", m.shelf.Size(), m.shelf.From(nil))
	}
}

// Large listings are whole, and a document that is not there spoils none.
func TestLargeListing(t *testing.T) {
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
		t.Fatalf("%d items, %v", len(got.Items), err)
	}
	for i, x := range got.Items[:1200] {
		if len(x.A) != 64<<10 {
			t.Fatalf("item %d has %d bytes", i, len(x.A))
		}
	}
}

// Names are shared while they are in use, however many there were.
func TestSharedNames(t *testing.T) {
	x := newPacks()
	first := one(x, strings.Clone("amy"))
	if again := one(x, strings.Clone("amy")); unsafe.StringData(again) != unsafe.StringData(first) {
		t.Error("the same name is there twice")
	}
	for n := range 3 * maxNames {
		one(x, strconv.Itoa(n))
	}
	if long := strings.Repeat("x", maxName+1); one(x, long) != long || len(x.names) > maxNames {
		t.Errorf("%d names", len(x.names))
	}
}

// The same rows have the same ETag, and others another one, also for those who may see more.
func TestPackedTextsInSums(t *testing.T) {
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
		t.Errorf("%s, %s again, %s with more, %s of another", tag(one), tag(again), tag(more), tag(other))
	}
	if plain := (itemText{text: one.appendTo(nil)}); tag(plain) != tag(one) {
		t.Errorf("%s, and %s of the same document that was asked for", tag(one), tag(plain))
	}
	x := item{itemText: more, aged: true}
	if got := x.appendTo([]byte("["), nil); string(got) != `[{"age":0.000,"a":1}` {
		t.Errorf("with its age it is %s", got)
	}
}
