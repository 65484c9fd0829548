package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
)

// tty is a terminal in memory.
type tty struct {
	mu             sync.Mutex
	text           bytes.Buffer
	columns, lines int
}

func (t *tty) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *tty) Size() (columns, lines int) { return t.columns, t.lines }

func (t *tty) take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.text.String()
	t.text.Reset()
	return s
}

// watchedWords is a listing of words in a fake cluster; the state of each follows a colon.
type watchedWords struct {
	words   []string
	fetches int
	cost    time.Duration
	news    news[string]
	partial []string
}

func (w *watchedWords) watched(t *testing.T, out io.Writer) watched[string] {
	t.Helper()
	columns := wordColumns()
	return watched[string]{
		view:  view[string]{streams: streams{out: out, err: out}, all: same(columns), form: formTable},
		key:   func(s string) string { k, _, _ := strings.Cut(s, ":"); return k },
		look:  func(s string) string { return s },
		over:  func(s string) bool { return strings.HasSuffix(s, ":over") },
		again: func(_ context.Context, key string) (string, bool) { return key + ":over", true },
		fetch: func(ctx context.Context, rows int) (api.Listing[string], error) {
			w.fetches++
			pause(ctx, w.cost)
			l := api.Listing[string]{Items: append([]string{}, w.words...), Partial: w.partial}
			if rows > 0 && rows < len(l.Items) {
				l.Items, l.Next = l.Items[:rows], "more"
			}
			return l, nil
		},
		follow: func(ctx context.Context, n news[string]) error {
			w.news = n
			n.stale()
			<-ctx.Done()
			return ctx.Err()
		},
	}
}

// On a terminal the listing is drawn in place, with the rows that fit. Many changes cost few listings.
func TestListingIsRedrawnInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		screen := &tty{columns: 12, lines: 3}
		fake := &watchedWords{words: []string{"a:runs", "b:a long word", "c:x", "d:x"}, cost: time.Second}
		done := make(chan error, 1)
		go func() { done <- fake.watched(t, screen).run(ctx) }()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if got, want := screen.take(), "\x1b[?1049h\x1b[?25l\x1b[HWORD\x1b[K\na:runs\x1b[K\n… more; wit…\x1b[K\x1b[J"; got != want {
			t.Errorf("first: got %q, want %q", got, want)
		}
		fake.words = []string{"z:new"}
		for range 1000 { // within 20 s
			fake.news.item(ctx, "z:new")
			time.Sleep(20 * time.Millisecond)
		}
		if fake.fetches > 6 { // each takes 1 s, and a pause of 4 s follows
			t.Errorf("1000 changes in 20 s cost %d listings, want at most 6", fake.fetches)
		}
		if got, want := screen.take(), "\x1b[HWORD\x1b[K\nz:new\x1b[K\x1b[J"; !strings.HasSuffix(got, want) || strings.Contains(got, "1049") {
			t.Errorf("then: got %q, want %q", got, want)
		}
		before := fake.fetches
		time.Sleep(time.Hour)
		if fake.fetches > before+1 {
			t.Errorf("an hour without changes cost %d listings, want at most 1", fake.fetches-before)
		}
		screen.take()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("at the end: got %v, want no error", err)
		}
		if got, want := screen.take(), "\x1b[?25h\x1b[?1049lWORD\nz:new\n"; got != want {
			t.Errorf("at the end: got %q, want %q", got, want)
		}
	})
}

// Without a terminal there is a line for each change and none for unchanged rows, also after a gap in the changes.
func TestChangesAreAppendedWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out bytes.Buffer
		fake := &watchedWords{words: []string{"a:waits", "b:waits"}}
		done := make(chan error, 1)
		go func() { done <- fake.watched(t, &out).run(ctx) }()
		says := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
			out.Reset()
		}
		says("WORD\na:waits\nb:waits\n")
		fake.news.item(ctx, "a:runs")
		fake.news.item(ctx, "a:runs")
		fake.news.item(ctx, "c:over")
		says("a:runs\nc:over\n")
		fake.words = []string{"b:waits", "d:waits"} // a has ended, d is new, and there was no event
		fake.news.stale()
		says("d:waits\na:over\n")
		fake.news.stale()
		says("")
		fake.words, fake.partial = []string{"b:runs"}, []string{"n9"} // n9 may know d
		fake.news.stale()
		says("muster: incomplete: no answer from n9\nb:runs\n")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The number of remembered items that have ended is bounded.
func TestRememberedItemsAreBounded(t *testing.T) {
	fake := &watchedWords{}
	w := fake.watched(t, io.Discard)
	p, err := w.printer(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := appended[string]{w, p, map[string]last{}}
	for i := range 3 * maxSeen {
		if err := a.show([]string{fmt.Sprintf("%d:over", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.seen) > maxSeen {
		t.Errorf("got %d remembered items, want at most %v", len(a.seen), maxSeen)
	}
}

// muster jobs -w prints the listing, then a line for each job that changes, from the stream of events alone.
func TestWatchedJobsArePrintedAsTheyChange(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listings := 0
	var asked string
	listed := make(chan struct{})
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			if listings++; listings == 1 {
				defer close(listed)
			}
			answer(http.StatusOK, jobsDoc(jobDoc(idA, "RUNNING", "")))(w, r)
		},
		"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.RawQuery
			io.WriteString(w, "data: {\"kind\":\"open\"}\n\n")
			w.(http.Flusher).Flush()
			<-listed
			io.WriteString(w, "data: {\"kind\":\"silent\"}\n\n") // changes nothing
			events(jobDoc(idA, "SUCCEEDED", ""), strings.Replace(jobDoc(idB, "PENDING", ""), `"name":"train"`, `"name":"other"`, 1), jobDoc(idB, "PENDING", ""))(w, r)
		},
	})
	out := &stopsAt{text: idB, stop: cancel}
	code := run(ctx, []string{"muster", "--socket", f.socket, "jobs", "-w", "--me", "--name", "t*"}, streams{strings.NewReader(""), out, io.Discard})
	want := "ID                        NAME   USER  ST  TIME  NODE  GPUS  REASON\n" +
		idA + "  train  amy   R   1m1s  n1    2     -\n" +
		idA + "  train  amy   CD  1m1s  n1    2     -\n" +
		idB + "  train  amy   PD  -     -     2     -\n"
	if code != 0 || out.String() != want || listings != 1 || asked != "mine=true" {
		t.Errorf("exit %d after %d listings, asked for %q:\n%s\nwant\n%s", code, listings, asked, out.String(), want)
	}
	if r := f.muster("jobs", "-w", "--json"); r.code != 2 || r.err != "muster: --json: one document cannot go on; use --jsonl with --watch\n" {
		t.Errorf("exit %d, %q, want 2 and the hint about --jsonl", r.code, r.err)
	}
}

// stopsAt calls stop after a text was written.
type stopsAt struct {
	bytes.Buffer

	text string
	stop func()
}

func (s *stopsAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.stop()
	}
	return s.Buffer.Write(p)
}
