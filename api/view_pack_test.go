package api

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/picture"
)

// A running job takes an eighth of its two documents, and the events of its start a seventh.
func TestRowsAndEventsAreSmall(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	p := fedPeer(123)
	m := &viewMember{Member: Member{Peer: p}, shelf: picture.NewShelf(), sight: &seen{}}
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
	s := clusterStream{view: w, filter: &eventFilter{}, w: client, flush: func() error { return nil }, alive: time.NewTimer(time.Hour)}
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
		sent += picture.Length(e.frame)
		packed += len(e.frame)
	}
	if sent > leastPart*maxEventBytes || sent < leastPart*maxEventBytes*9/10 || packed > 1<<20 {
		t.Errorf("%d events of %d bytes, packed %d", len(events), sent, packed)
	}
}

// The same rows have the same ETag, and others another one, also for those who may see more.
func TestPackedTextsInSums(t *testing.T) {
	p := picture.NewPacker(typicalText())
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
	x := item{itemText: more, aged: true}
	if got := x.appendTo([]byte("["), nil); string(got) != `[{"age":0.000,"a":1}` {
		t.Errorf("with its age it is %s", got)
	}
}
