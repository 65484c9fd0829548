package resources

// Shares: what users and projects have used of this host, and the standings by which offers of one priority are
// ordered.
// See docs/adr, ADR 90.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

const (
	// maxAccounts bounds the accounts that are counted. Beyond it, accounts that hold nothing and have used least are
	// dropped.
	maxAccounts = 4096
	// keptEvery is the number of periods between two saves of the usage: a minute with a half-life of a day.
	keptEvery = 6
	// standingsFor is how long offers are ordered by the same standings.
	standingsFor = time.Second / 4
)

// Meter counts what accounts use. It computes usage when it is read, so that it costs nothing while tasks run.
type Meter struct {
	turn    *step.Turn
	weights fairshare.Weights
	has     fairshare.Use // the GPUs and CPUs of this host
	lines   map[fairshare.Account]*line
	tasks   int              // number of tasks that hold something
	saved   Usage            // what an earlier run of the daemon has saved
	table   *fairshare.Table // the standings; nil: none were needed yet
	tableAt leaseclock.BootTime
	timer   *step.Timer // for news of usage; nil: nothing is used and all is told and saved
	due     bool        // schedulers are to be told in this turn
	keep    bool        // usage is to be saved in this turn
	kept    leaseclock.BootTime
	unsaved bool
}

// line is what one account has used and holds.
type line struct {
	tasks int
	held  fairshare.Use // GPUs and CPUs
	used  fairshare.Use // seconds, decayed to this time:
	at    leaseclock.BootTime
}

func newMeter(p contract.Profile, w fairshare.Weights, saved Usage, t *step.Turn) *Meter {
	return &Meter{turn: t, weights: w, has: offeredBy(p), lines: map[fairshare.Account]*line{}, saved: saved}
}

// offeredBy returns the GPUs and CPUs of a profile.
func offeredBy(p contract.Profile) fairshare.Use {
	return fairshare.Use{GPU: float64(len(p.GPUs)), CPU: float64(p.CPUs)}
}

// charge brings the line up to date.
func (l *line) charge(now leaseclock.BootTime, halfLife time.Duration) {
	if d := now.Sub(l.at); d > 0 {
		l.used = l.used.Times(fairshare.Decay(d, halfLife)).Plus(l.held, fairshare.Held(d, halfLife))
		l.at = now
	}
}

// of returns the line of an account, charged. It makes the line if there is none.
func (m *Meter) of(a fairshare.Account) *line {
	l := m.lines[a]
	if l == nil {
		if len(m.lines) >= maxAccounts {
			m.forget()
		}
		l = &line{at: m.turn.Now()}
		m.lines[a] = l
	}
	l.charge(m.turn.Now(), m.weights.HalfLife)
	return l
}

// forget makes room for lines. It looks at those accounts that idlest returns. If such an account is of a project without
// a share of its own, its use is added to the user's other use. If that frees too little, all that idlest then returns
// are dropped.
func (m *Meter) forget() {
	for _, e := range m.idlest() {
		if own := m.weights.Account(e.Account); own != e.Account {
			m.merge(own, m.lines[e.Account])
			delete(m.lines, e.Account)
		}
	}
	if len(m.lines) <= maxAccounts*3/4 {
		return
	}
	for _, e := range m.idlest() {
		delete(m.lines, e.Account)
	}
}

// idlest returns half of the accounts that hold nothing: those that have used least.
func (m *Meter) idlest() []fairshare.Entry {
	idle := slices.DeleteFunc(m.entries(), func(e fairshare.Entry) bool { return m.lines[e.Account].tasks > 0 })
	return idle[len(idle)/2:]
}

// merge adds the use of a line to that of an account. Both are charged.
func (m *Meter) merge(to fairshare.Account, l *line) {
	sum := m.lines[to]
	if sum == nil {
		sum = &line{at: l.at}
		m.lines[to] = sum
	}
	sum.used = sum.used.Plus(l.used, 1)
}

// use counts what a task of an account begins to hold or, with sign -1, ceases to hold.
func (m *Meter) use(a fairshare.Account, need job.Resources, devices []string, sign int) {
	if !m.weights.On() {
		return
	}
	l := m.of(a)
	l.held = l.held.Plus(heldBy(need, devices), float64(sign))
	m.tasks += sign
	if l.tasks += sign; l.tasks == 0 {
		l.held = fairshare.Use{}
	}
	m.unsaved = true
	m.arm()
}

// heldBy returns what a task holds.
func heldBy(need job.Resources, devices []string) fairshare.Use {
	return fairshare.Use{GPU: float64(len(devices)*gpu.Milli(need)) / gpu.Whole, CPU: float64(need.CPUs)}
}

// arm sets the timer after which usage is told and, less often, saved.
func (m *Meter) arm() {
	if m.timer != nil {
		return
	}
	period := m.weights.Period()
	m.timer = m.turn.Timers.Set(m.turn.Now().Add(period), func(now leaseclock.Moment) {
		m.timer = nil
		m.due, m.unsaved = true, m.unsaved || m.tasks > 0
		if m.unsaved && now.Boot.Sub(m.kept) >= keptEvery*period {
			m.keep = true
		}
		if m.tasks > 0 || m.unsaved && !m.keep {
			m.arm()
		}
	})
}

// entries returns what accounts have used by now, sorted.
func (m *Meter) entries() []fairshare.Entry {
	out := make([]fairshare.Entry, 0, len(m.lines))
	for a, l := range m.lines {
		l.charge(m.turn.Now(), m.weights.HalfLife)
		out = append(out, fairshare.Entry{Account: a, Used: l.used})
	}
	m.sort(out)
	return out
}

// sort puts the accounts with the largest part of this host first.
func (m *Meter) sort(all []fairshare.Entry) {
	slices.SortFunc(all, func(a, b fairshare.Entry) int {
		return cmp.Or(cmp.Compare(b.Used.Of(m.has), a.Used.Of(m.has)), a.Compare(b.Account))
	})
}

// Report returns the usage that schedulers are told; nil if there is none. If there are too many accounts, the use of
// projects without a share of their own is reported as their users' other use.
func (m *Meter) Report() *contract.Usage {
	m.due = false
	if len(m.lines) == 0 {
		return nil
	}
	all := m.entries()
	if len(all) > contract.MaxUsage {
		used := map[fairshare.Account]fairshare.Use{}
		for _, e := range all {
			own := m.weights.Account(e.Account)
			used[own] = used[own].Plus(e.Used, 1)
		}
		all = all[:0]
		for a, u := range used {
			all = append(all, fairshare.Entry{Account: a, Used: u})
		}
		m.sort(all)
	}
	return &contract.Usage{Entries: all[:min(len(all), contract.MaxUsage)]}
}

// IsDue reports whether schedulers are to be told of the usage in this turn.
func (m *Meter) IsDue() bool { return m.due }

// On reports whether usage is counted.
func (m *Meter) On() bool { return m.weights.On() }

// Record returns what is saved for the next run of the daemon; nil unless it is time.
func (m *Meter) Record(now leaseclock.Moment, boot string) *Usage {
	if !m.keep {
		return nil
	}
	m.keep, m.unsaved, m.kept = false, false, now.Boot
	return &Usage{Boot: boot, At: now.Boot, Wall: now.Wall, Entries: m.entries()}
}

// Load restores what an earlier run of the daemon has saved. Tasks that went on meanwhile are charged for that time.
// found says which of them have ended, and when.
func (m *Meter) Load(now leaseclock.Moment, boot string, running []contract.Record, found []driver.Event) {
	was := m.saved
	m.saved = Usage{}
	if !m.weights.On() {
		return
	}
	away := was.away(now, boot)
	for _, l := range m.lines {
		l.at = now.Boot
	}
	for _, e := range was.Entries[:min(len(was.Entries), maxAccounts)] {
		l := m.of(e.Account)
		l.used = l.used.Plus(e.Used.Capped(m.most()), fairshare.Decay(away, m.weights.HalfLife))
	}
	if was.Wall.IsZero() || was.Boot != boot {
		return // nothing went on
	}
	ended := map[job.Attempt]time.Time{}
	for _, e := range found {
		if e.Kind != driver.Started && e.Kind != driver.Starting {
			ended[e.Attempt] = e.Exit.Ended
		}
	}
	for _, rec := range running {
		until := ended[rec.Attempt]
		if until.IsZero() {
			until = now.Wall
		}
		d := min(max(until.Sub(later(was.Wall, rec.Recorded)), 0), away)
		l := m.of(fairshare.Account{User: rec.User, Project: rec.Project})
		l.used = l.used.Plus(heldBy(rec.Need, rec.Devices), fairshare.Held(d, m.weights.HalfLife))
	}
	m.unsaved = true
	m.arm()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// most returns the greatest use of this host that is possible.
func (m *Meter) most() fairshare.Use { return m.has.Times(fairshare.Forever(m.weights.HalfLife)) }

// Standing returns the standing of an account, by the table that orders the queue.
func (m *Meter) Standing(a fairshare.Account) fairshare.Standing { return m.table.Of(a) }

// Refresh recomputes the standings. It returns false if the old ones are recent enough, or if usage is not counted.
func (m *Meter) Refresh() bool {
	if !m.weights.On() || m.table != nil && m.turn.Now().Sub(m.tableAt) < standingsFor {
		return false
	}
	m.table, m.tableAt = fairshare.NewTable(&m.weights, m.has), m.turn.Now()
	for a, l := range m.lines {
		l.charge(m.turn.Now(), m.weights.HalfLife)
		m.table.Add(a, l.used)
	}
	return true
}

// SetWeights replaces the weights. Usage that was counted stays.
func (m *Meter) SetWeights(w fairshare.Weights) {
	for _, l := range m.lines {
		l.charge(m.turn.Now(), m.weights.HalfLife)
		if !w.On() {
			l.at = m.turn.Now()
		}
	}
	m.weights, m.table = w, nil
	m.turn.Arbitrate()
}

// UsageView is what accounts have used of a host, and what they hold, for people.
type UsageView struct {
	Weights fairshare.Weights
	Has     fairshare.Use
	Entries []fairshare.Entry
	Held    map[fairshare.Account]fairshare.Use
	Limits  Limits // of users on this host; must not be changed
	// Priorities are the highest ones of offers; nil: any. They must not be changed.
	Priorities *contract.Priorities
}

// view returns the present state, without limits and priorities.
func (m *Meter) view(now leaseclock.Moment) UsageView {
	m.turn.Begin(now.Boot)
	v := UsageView{Weights: m.weights, Has: m.has, Entries: m.entries(), Held: map[fairshare.Account]fairshare.Use{}}
	v.Weights.Users, v.Weights.Projects = maps.Clone(v.Weights.Users), maps.Clone(v.Weights.Projects)
	for a, l := range m.lines {
		if l.tasks > 0 {
			v.Held[a] = l.held
		}
	}
	return v
}
