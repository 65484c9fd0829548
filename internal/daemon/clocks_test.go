package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/session"
)

// peersAhead are daemons whose clocks are ahead of that of this host by these times.
func peersAhead(all ...time.Duration) (out []session.Info) {
	for _, d := range all {
		out = append(out, session.Info{Clock: session.Clock{Known: true, Ahead: d, Within: 20 * time.Millisecond}})
	}
	return append(out, session.Info{Peer: "of an earlier version"})
}

// A clock is off if it differs from those of most others. One wrong clock among others does not make the others wrong.
func TestClockIsComparedWithMostOthers(t *testing.T) {
	const ms, h = time.Millisecond, time.Hour
	for what, c := range map[string]struct {
		peers []time.Duration
		want  time.Duration
	}{
		"nobody":                    {nil, 0},
		"one that is right":         {[]time.Duration{30 * ms}, 0},
		"one that is an hour ahead": {[]time.Duration{h}, -h},
		"one of two":                {[]time.Duration{h, -20 * ms}, 0},
		"one of two, behind":        {[]time.Duration{-h, 20 * ms}, 0},
		"one of three":              {[]time.Duration{10 * ms, h, -10 * ms}, 0},
		"this host, 5 s":            {[]time.Duration{-5010 * ms, -4990 * ms, h}, 5 * time.Second},
		"this host, an hour behind": {[]time.Duration{h, h + 40*ms, h - 40*ms, h}, -h},
	} {
		got, n := aheadOfMost(peersAhead(c.peers...))
		if got != c.want && (got-c.want).Abs() > time.Second || n != len(c.peers) || (got == 0) != (c.want == 0) {
			t.Errorf("%s: got %s of %d, want %s of %d", what, got, n, c.want, len(c.peers))
		}
	}
}

// A fact and the log say when a clock is off, by how much, and when it is right again.
func TestWrongClockIsReported(t *testing.T) {
	var log strings.Builder
	var peers []session.Info
	c := &clocks{
		peers: func() []session.Info { return peers }, log: slog.New(slog.NewTextHandler(&log, nil)),
		of: func(job.Peer) session.Clock {
			return session.Clock{Known: true, Ahead: -time.Hour + 3*time.Millisecond, Within: time.Millisecond}
		},
	}
	is := func(state api.FactState, detail string) {
		t.Helper()
		c.look(t.Context())
		f := c.fact()
		if f.State != state || !strings.Contains(f.Detail, detail) {
			t.Errorf("got %+v, want %s with %q", f, state, detail)
		}
		if warns := state == api.FactWarn; (c.detail() != "") != warns || warns && !strings.Contains(f.Advice, "chrony") {
			t.Errorf("got %q, %+v, want a warning with advice only if the clock is off", c.detail(), f)
		}
	}
	is(api.FactSkip, "not compared")
	peers = peersAhead(3*time.Millisecond, 5*time.Millisecond)
	is(api.FactOK, "within 2s of those of most of 2 other daemons")
	peers = peersAhead(-time.Hour, -time.Hour)
	is(api.FactWarn, "1h ahead of those of most others")
	peers = peersAhead(-time.Hour-30*time.Second, -time.Hour-31*time.Second)
	is(api.FactWarn, "1h ahead of those of most others") // as before
	peers = peersAhead(4*time.Second, 5*time.Second, 6*time.Second)
	is(api.FactWarn, "5s behind those of most others")
	peers = peersAhead(0)
	is(api.FactOK, "")
	if text := log.String(); strings.Count(text, "is off") != 1 || strings.Count(text, "again") != 1 {
		t.Errorf("the log: got\n%s\nwant one line for each change", text)
	}
	if got := c.Ahead("p"); got != -time.Hour {
		t.Errorf("a peer: got %s ahead, want -1h", got)
	}
}
