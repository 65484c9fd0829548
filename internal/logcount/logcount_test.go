package logcount

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/logtest"
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
		if n := len(text.String()); n > 1<<20 {
			t.Errorf("%d bytes in an hour", n)
		}
		mine := len(text.Lines("session cut", "peer=mallory"))
		if n := len(text.Lines("session cut", "peer=honest")); n != seconds/600 {
			t.Errorf("%d lines about another member", n)
		}
		if n := len(text.Lines("worker found")); n != seconds/600 {
			t.Errorf("%d other lines", n)
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
			t.Errorf("%d lines written and %d counted, of %d", mine, counted, each*seconds)
		}
	})
}

// Causes that are made up do not make the log grow either, nor the memory.
func TestMadeUpCausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logger(slog.LevelInfo)
		for n := range 100_000 {
			log.Info("request refused", "user", fmt.Sprint("user-", n))
			time.Sleep(36 * time.Millisecond) // an hour in all
		}
		if n := len(text.String()); n > 1<<20 {
			t.Errorf("%d bytes in an hour", n)
		}
		for _, p := range log.Handler().(*Handler).counts.places {
			if len(p.causes) > maxCauses {
				t.Errorf("%d causes are remembered", len(p.causes))
			}
		}
		time.Sleep(tellAfter) // the timer ends
	})
}

// Lines for debugging are all written.
func TestLinesForDebugging(t *testing.T) {
	log, text := logger(slog.LevelDebug)
	for range 10 * placeBurst {
		log.Debug("frame", "peer", "p")
	}
	if n := len(text.Lines("frame")); n != 10*placeBurst {
		t.Errorf("%d lines", n)
	}
}

func BenchmarkLeftOut(b *testing.B) {
	log, _ := logger(slog.LevelInfo)
	b.ReportAllocs()
	for range b.N {
		log.Warn("session cut", "peer", "mallory")
	}
}
