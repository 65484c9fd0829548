package api

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api/view"
)

// pacedOnes are the feed and the stream of events, with what they have in common: each calls wrote when it writes a
// batch, and change gives it something to write.
type paced struct {
	name  string
	begin func(ctx context.Context, wrote func()) (change func())
}

func pacedOnes() []paced {
	return []paced{
		{"feed", func(ctx context.Context, wrote func()) func() {
			lines, n := view.NewLog(), 0
			lines.Set(keySynced, []byte("all told\n")) // until then a feed does not wait
			go func() {
				_ = followLog(ctx, lines, func(batch []view.Line, _ bool) error {
					if len(batch) > 0 {
						wrote()
					}
					return nil
				})
			}()
			return func() { n++; lines.Set("j", fmt.Appendln(nil, n)) }
		}},
		{"events", func(ctx context.Context, wrote func()) func() {
			v := newView(&daemons{self: "me"}, nil, nil, feedHello{})
			s := clusterStream{clusterView: v, filter: &eventFilter{}, w: &countedWriter{header: http.Header{}}, flush: func() error { wrote(); return nil }}
			go func() { _ = s.run(ctx, 0, false, true) }()
			return func() { v.tell(&change{viewEvent: viewEvent{kind: EventGone}}) }
		}},
	}
}

// A job that ends has two states within a few milliseconds, and the next job starts then. All of them are sent soon,
// although the first state was sent at once.
func TestChangesAfterAQuietTimeAreSentSoon(t *testing.T) {
	for _, one := range pacedOnes() {
		t.Run(one.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var writes []time.Duration
				var began time.Time
				change := one.begin(t.Context(), func() { writes = append(writes, time.Since(began)) })
				sleep(t.Context(), 5*time.Second)
				for range 5 { // jobs
					sleep(t.Context(), 500*time.Millisecond)
					synctest.Wait()
					writes, began = nil, time.Now()
					change()
					sleep(t.Context(), 2*time.Millisecond)
					change()
					sleep(t.Context(), 8*time.Millisecond)
					change()
					sleep(t.Context(), 190*time.Millisecond)
					synctest.Wait()
					if len(writes) != 2 || writes[0] != 0 || writes[1] > 50*time.Millisecond {
						t.Errorf("got writes after %v, want 2, the first at once, the second within 50 ms", writes)
					}
				}
			})
		})
	}
}

// Whatever the time between changes is, there are at most ten batches a second, and no change is held longer than the
// pause of a feed.
func TestAtMostTenBatchesASecond(t *testing.T) {
	for _, one := range pacedOnes() {
		for _, gaps := range [][]time.Duration{{time.Millisecond}, {20 * time.Millisecond}, {51 * time.Millisecond}, {111 * time.Millisecond}, {201 * time.Millisecond}, {time.Millisecond, 249 * time.Millisecond}, {60 * time.Millisecond, 60 * time.Millisecond, 201 * time.Millisecond}} {
			t.Run(fmt.Sprint(one.name, gaps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var writes []time.Time
					change := one.begin(t.Context(), func() { writes = append(writes, time.Now()) })
					sleep(t.Context(), 5*time.Second)
					synctest.Wait()
					writes = nil
					var first time.Time // the oldest change that is not written yet
					for i, began := 0, time.Now(); time.Since(began) < 20*time.Second; i++ {
						n := len(writes)
						if first.IsZero() {
							first = time.Now()
						}
						change()
						sleep(t.Context(), gaps[i%len(gaps)])
						synctest.Wait()
						if len(writes) > n {
							if late := writes[len(writes)-1].Sub(first); late > feedPause {
								t.Fatalf("a change was held for %s, want at most %s", late, feedPause)
							}
							first = time.Time{}
						}
					}
					for i, w := range writes {
						n := 1
						for _, x := range writes[i+1:] {
							if x.Sub(w) < time.Second {
								n++
							}
						}
						if n > 10 {
							t.Fatalf("got %d batches in a second, want at most 10", n)
						}
					}
				})
			})
		}
	}
}
