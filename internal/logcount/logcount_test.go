package logcount

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/testkit/logtest"
)

func logger(level slog.Level) (*slog.Logger, *logtest.Buffer) {
	text := new(logtest.Buffer)
	return slog.New(New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: level}))).With("part", "test"), text
}

// One member causes a line without end: the log stays small, the count is written, and the same line about others, and
// other lines about that member, are written as before.
func TestLinesOfOneCauseAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logger(slog.LevelInfo)
		cut := func(peer string) { log.Warn("session cut", "peer", peer, "error", "flood") }
		const each, seconds = 300, 3600
		for s := range seconds {
			for range each {
				cut("mallory")
			}
			if s%600 == 0 {
				cut("honest")
				log.Info("worker found", "peer", "mallory")
			}
			time.Sleep(time.Second)
		}
		time.Sleep(tellAfter)
		synctest.Wait() // the count is written at the end of this moment
		if n := len(text.String()); n > 1<<20 {
			t.Errorf("got %d bytes in an hour, want at most 1 MiB", n)
		}
		mine := len(text.Lines("session cut", "peer=mallory"))
		if n := len(text.Lines("session cut", "peer=honest")); n != seconds/600 {
			t.Errorf("got %d lines about another member, want %d", n, seconds/600)
		}
		if n := len(text.Lines("worker found")); n != seconds/600 {
			t.Errorf("got %d other lines, want %d", n, seconds/600)
		}
		counted := 0
		for _, l := range text.Lines("log lines left out", "level=WARN", "last_about=mallory", "logcount.TestLines") {
			var n int
			if _, err := fmt.Sscanf(l[strings.Index(l, "count="):], "count=%d", &n); err != nil {
				t.Fatal(err)
			}
			counted += n
		}
		if mine+counted != each*seconds {
			t.Errorf("got %d lines written and %d counted, want %d in all", mine, counted, each*seconds)
		}
	})
}

// Invented causes do not make the log or the memory grow.
func TestInventedCausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logger(slog.LevelInfo)
		for n := range 100_000 {
			log.Info("request refused", "user", fmt.Sprint("user-", n))
			time.Sleep(36 * time.Millisecond) // an hour in all
		}
		if n := len(text.String()); n > 1<<20 {
			t.Errorf("got %d bytes in an hour, want at most 1 MiB", n)
		}
		for _, p := range log.Handler().(*Handler).counts.places {
			for _, k := range p {
				if k.causes.Len() > maxCauses {
					t.Errorf("got %d remembered causes, want at most %v", k.causes.Len(), maxCauses)
				}
			}
		}
		time.Sleep(tellAfter) // the timer ends
	})
}

// A flood of one message hides no other message that is written at the same place, as the lines of a core are.
func TestFloodHidesNoOtherMessageOfItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logger(slog.LevelInfo)
		const flood = 10 * kindBurst
		var lines [][2]string // messages and their subjects
		for n := range flood {
			lines = append(lines, [2]string{"offer declined", fmt.Sprint("user-", n)}, [2]string{"offer ignored", "mallory"})
		}
		lines = append(lines, [2]string{"quarantined", "mallory"}, [2]string{"journal lost"})
		for _, l := range lines {
			log.LogAttrs(t.Context(), slog.LevelWarn, l[0], slog.String("peer", l[1])) //nolint:sloglint // as a core does
		}
		for _, msg := range []string{"quarantined", "journal lost"} {
			if n := len(text.Lines(msg)); n != 1 {
				t.Errorf("got %d lines %q after a flood of others, want 1", n, msg)
			}
		}
		time.Sleep(tellAfter)
		synctest.Wait() // the count is written at the end of this moment
		for msg, written := range map[string]int{"offer declined": kindBurst, "offer ignored": causeBurst} {
			if n := len(text.Lines("log lines left out", fmt.Sprintf("lines=%q count=%d ", msg, flood-written))); n != 1 {
				t.Errorf("got %d counts of %q, want 1", n, msg)
			}
		}
	})
}

// Invented messages do not make the log or the memory grow, and known messages are written.
func TestInventedMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logger(slog.LevelInfo)
		for n := range 100_000 {
			msg := "known"
			if n%50_000 > 0 {
				msg = fmt.Sprint("message ", n)
			}
			log.Warn(msg) //nolint:sloglint // made up
		}
		if n := len(text.Lines("msg=known")); n != 2 {
			t.Errorf("got %d lines with a known message, want 2", n)
		}
		if n := len(text.Lines("msg=")); n > 2+maxMessages+kindBurst {
			t.Errorf("got %d lines, want at most %v", n, 2+maxMessages+kindBurst)
		}
		for _, p := range log.Handler().(*Handler).counts.places {
			if len(p) > maxMessages+1 {
				t.Errorf("got %d remembered messages, want at most %v", len(p), maxMessages+1)
			}
		}
		time.Sleep(tellAfter) // the timer ends
	})
}

// When the program ends the counts are written at once, and only once.
func TestFlushWritesTheCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logger(slog.LevelInfo)
		for range 3 * causeBurst {
			log.Warn("session cut", "peer", "mallory")
		}
		log.With("more", 1).Handler().(*Handler).Flush()
		log.Handler().(*Handler).Flush()
		if n := len(text.Lines("log lines left out", fmt.Sprintf("count=%d ", 2*causeBurst))); n != 1 {
			t.Errorf("got %d counts after the flush, want 1", n)
		}
		time.Sleep(2 * tellAfter)
		if n := len(text.Lines("log lines left out")); n != 1 {
			t.Errorf("got %d counts a while later, want 1", n)
		}
	})
}

// Lines for debugging are all written.
func TestLinesForDebuggingAreAllWritten(t *testing.T) {
	log, text := logger(slog.LevelDebug)
	for range 10 * kindBurst {
		log.Debug("frame", "peer", "p")
	}
	if n := len(text.Lines("frame")); n != 10*kindBurst {
		t.Errorf("got %d lines, want %v", n, 10*kindBurst)
	}
}

func BenchmarkLeftOut(b *testing.B) {
	log, _ := logger(slog.LevelInfo)
	b.ReportAllocs()
	for range b.N {
		log.Warn("session cut", "peer", "mallory")
	}
}

func BenchmarkMadeUpCauses(b *testing.B) {
	log, _ := logger(slog.LevelInfo)
	b.ReportAllocs()
	for n := range b.N {
		log.Warn("session cut", "peer", n)
	}
}
