package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

// busyNode is a host with 8 GPUs whose n-th samples are these.
func busyNode(n int) NodeInfo {
	at := time.Unix(1_800_000_000+int64(n)*5, 0)
	p := contract.Profile{Peer: fedPeer(1), Name: "ben", CPUs: 128, Memory: 1 << 40, Worker: true, Drivers: []string{"exec", "docker"}, Labels: map[string]string{"rack": "r1", "leaf": "l1"}}
	info := NodeInfo{State: NodeReady, Addrs: []string{"/ip4/10.0.0.1/tcp/4980"}, Read: at, Usage: usage.Sample{At: at, Values: usage.Unknown()}, Holders: map[string][]job.ID{}}
	info.Usage.Values[usage.CPU], info.Usage.Values[usage.Memory] = 64+float64(n)/7, float64(300<<30+n)
	for i := range 8 {
		d := gpu.Device{UUID: fmt.Sprintf("GPU-5f3c9a04-0000-4000-8000-%012d", i), Index: i, Model: "NVIDIA H100 80GB HBM3", Class: "h100-80gb", Memory: 80 << 30, Driver: "570.1"}
		p.GPUs = append(p.GPUs, d)
		info.Status = append(info.Status, gpu.Status{UUID: d.UUID, Health: gpu.Healthy, MemoryUsed: job.Size(60<<30 + n), Utilization: (90 + n + i) % 100, Temperature: 55 + n%9, PowerMilli: 412_000 + n})
		info.Holders[d.UUID] = []job.ID{job.NewID(7, 1)}
	}
	info.Profile = p
	return info
}

// toldOf returns what a reader that has read everything gets of a node, as the node is then and as the lines say.
func toldOf(t *testing.T, o *nodeLines, lines *view.Log, after uint64, measured bool, info NodeInfo) (got []view.Line, next uint64) {
	t.Helper()
	n := NodeDocument(info)
	o.tell(lines, &n)
	all, next, _ := lines.Since(after, feedBatch)
	to := reader{jobs: true, measured: measured, whole: o.whole}
	for _, l := range all {
		if l.Text = to.text(l); l.Text != nil {
			got = append(got, l)
		}
	}
	return got, next
}

// A sample costs a small line, and the picture has the present node. Any other change costs the whole document.
func TestSampleIsASmallLine(t *testing.T) {
	for _, measured := range []bool{true, false} {
		w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
		m := &viewMember{Member: Member{Peer: fedPeer(1)}, sight: &seen{}, shelf: view.NewShelf()}
		o, lines, at := nodeLines{whole: new(wholeNode)}, view.NewLog(), uint64(0)
		sizes := []int{}
		for n := range 12 { // a minute
			info := busyNode(n)
			if n >= 6 {
				info.Holders[info.Status[3].UUID] = nil
			}
			var got []view.Line
			got, at = toldOf(t, &o, lines, at, measured, info)
			size := 0
			for _, x := range got {
				l, err := parseFeedLine(x.Text)
				if err != nil {
					t.Fatal(err)
				}
				w.apply(m, &l)
				size += len(x.Text)
			}
			sizes = append(sizes, size)
			doc := m.document(w.packer.Packer)
			if want, text := NodeDocument(info), doc.appendTo(nil); !reflect.DeepEqual(m.node, &want) || !bytes.Equal(text, textOf(&want)) {
				t.Fatalf("sample %d, measured %t: got in the picture\n%s, want\n%s", n, measured, text, textOf(&want))
			}
			again, _ := toldOf(t, &o, lines, at, measured, info)
			if len(again) > 0 {
				t.Errorf("got a line twice: %s, want len(again) = 0", again[0].Text)
			}
		}
		t.Logf("bytes of each sample, measured %t: %v", measured, sizes)
		for n, size := range sizes {
			whole := n == 0 || n == 6
			if measured && !whole && size > 800 || (whole || !measured) && size < 3000 {
				t.Errorf("sample %d, measured %t: got %d bytes, want at most 800 for a line and at least 3000 for a node", n, measured, size)
			}
		}
	}
}

// Values for another number of GPUs than the node has are ignored, and a line with missing values is refused.
func TestMeasuredLinesThatDoNotFitAreIgnored(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	m := &viewMember{Member: Member{Peer: fedPeer(1)}, sight: &seen{}, shelf: view.NewShelf()}
	n := NodeDocument(busyNode(0))
	values := measuredOf(&n)
	w.apply(m, &feedLine{Measured: values})
	if m.node != nil {
		t.Error("got a node that was never sent")
	}
	w.apply(m, &feedLine{Node: &n})
	before := m.node
	few := *values
	few.Memory, few.Busy, few.Heat, few.Power = few.Memory[1:], few.Busy[1:], few.Heat[1:], few.Power[1:]
	w.apply(m, &feedLine{Measured: &few})
	if m.node != before {
		t.Errorf("the values of 7 GPUs changed a node with 8: got %v, want %v", m.node, before)
	}
	for _, text := range []string{`{"measured":{"utilization":[1,2]}}`, `{"measured":{"memory_used":[1],"utilization":[1],"temperature":[1]}}`, `{"measured":{},"synced":true}`} {
		if _, err := parseFeedLine([]byte(text)); err == nil {
			t.Errorf("accepted %s, want an error", text)
		}
	}
}

// The feed of a daemon serves both kinds of readers.
func TestFeedServesReadersWithAndWithoutSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		v := amy.makePicture(t)
		count := func(measured bool) (nodes, samples int) {
			ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
			defer cancel()
			u := url.URL{Scheme: "http", Host: string(ben.peer), Path: pathFeed}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			setRequester(req.Header, requester{})
			if measured {
				req.Header.Set(headerMeasured, "true")
			}
			resp, err := v.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			next := time.AfterFunc(time.Second, func() {
				for i := range 10 {
					ben.mu.Lock()
					ben.now = usage.Sample{At: time.Now(), Values: usage.Unknown()}
					ben.now.Values[usage.CPU] = float64(i) + 0.25
					ben.mu.Unlock()
					sleep(t.Context(), 5*time.Second)
				}
			})
			defer next.Stop()
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				l, err := parseFeedLine(lineText(lines.Bytes()))
				if err != nil {
					t.Fatal(err)
				}
				if l.Node != nil {
					nodes++
				}
				if l.Measured != nil {
					samples++
				}
			}
			return nodes, samples
		}
		if nodes, samples := count(true); nodes != 1 || samples < 10 || samples > 12 {
			t.Errorf("got %d nodes and %d samples in a minute, want 1 and 10 to 12", nodes, samples)
		}
		if l, err := amy.client.Nodes(t.Context()); err != nil || !slices.ContainsFunc(l.Items, func(n Node) bool { return n.ID == ben.peer && n.Usage != nil && *n.Usage.CPUs == 9.25 }) {
			t.Errorf("nodes: got %+v, %v, want 9.25 CPUs in use at ben", l, err)
		}
		if nodes, samples := count(false); nodes < 10 || nodes > 12 || samples != 0 {
			t.Errorf("a reader of an earlier version: got %d nodes and %d samples, want 10 to 12 and 0", nodes, samples)
		}
	})
}

// earlier is a daemon of an earlier version: it has feeds of whole nodes, and refuses parameters that it does not know.
type earlier struct{ node Node }

func (e earlier) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
	text := encodeLine(feedLine{Node: &e.node})
	if r.URL.RawQuery != "" {
		resp.StatusCode, text = http.StatusUnprocessableEntity, []byte(`{"detail":"unknown query parameter"}`)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// While a cluster is upgraded, the feeds of daemons of the version before are followed.
func TestFeedOfAnEarlierVersionIsFollowed(t *testing.T) {
	n := NodeDocument(busyNode(0))
	d := &daemons{http: &http.Client{Transport: earlier{n}}}
	told := 0
	err := d.feedOf(t.Context(), nil, fedPeer(1), newFeedPace(), func(l *feedLine) error {
		if l.Node != nil {
			told++
		}
		return nil
	})
	if told != 1 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %d nodes, %v, want 1 and ErrUnavailable", told, err)
	}
}

// lineText is a line; an empty one is an empty document.
func lineText(text []byte) []byte {
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// The age of the last reading of a drained host changes the less often the older it is.
func TestAgeOfALastReadingChangesEverMoreRarely(t *testing.T) {
	texts := map[string]bool{}
	for ago := time.Duration(0); ago < 10*time.Hour; ago += time.Second {
		texts[aged("", ago)] = true
	}
	if len(texts) > 60+60+10 || !texts["3m ago: let go while the node is drained"] && !texts["3m0s ago: let go while the node is drained"] {
		t.Errorf("got %d texts in ten hours, want at most 130, with 3m ago", len(texts))
	}
}

// BenchmarkSample measures the cost of a sample of a node with 8 GPUs for a daemon with a viewer, as a line of its own
// and as a whole node.
func BenchmarkSample(b *testing.B) {
	for _, measured := range []bool{true, false} {
		b.Run(fmt.Sprintf("measured=%t", measured), func(b *testing.B) {
			w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
			m := &viewMember{Member: Member{Peer: fedPeer(1)}, sight: &seen{}, shelf: view.NewShelf()}
			texts := [][]byte{}
			for n := range 12 {
				d := NodeDocument(busyNode(n))
				l := feedLine{Node: &d}
				if n > 0 && measured {
					l = feedLine{Measured: measuredOf(&d)}
				}
				texts = append(texts, encodeLine(l))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				text := texts[i%len(texts)]
				l, err := parseFeedLine(text)
				if err != nil {
					b.Fatal(err)
				}
				w.apply(m, &l)
			}
		})
	}
}

// BenchmarkTell measures the cost of reading the own node with 8 GPUs for a daemon of which others keep a picture:
// after a sample, and with nothing new.
func BenchmarkTell(b *testing.B) {
	docs := []Node{}
	for n := range 12 {
		docs = append(docs, NodeDocument(busyNode(n)))
	}
	for _, name := range []string{"sample", "same"} {
		b.Run(name, func(b *testing.B) {
			o, lines := nodeLines{whole: new(wholeNode)}, view.NewLog()
			o.tell(lines, &docs[0])
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if name == "sample" {
					o.tell(lines, &docs[i%len(docs)])
				} else {
					o.tell(lines, &docs[0])
				}
			}
		})
	}
}
