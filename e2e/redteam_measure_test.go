//go:build e2e

package e2e

// The costs of an attack for others, measured around each attack of the red team.

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of the costs of an attack.
const (
	mostMemory = 150 << 20   // of each daemon, in bytes
	mostLog    = 1 << 20     // of one cause in an hour, in bytes
	firstLog   = mostLog / 2 // of one cause at once: the first lines show who attacks, and no more may follow
)

// costs are the costs of one attack.
type costs struct {
	name     string
	span     time.Duration
	probes   []probe
	memory   map[string]*memoryOf // by daemon
	logBytes int
	logCause string // the cause with the most bytes beyond those of honest work
	logHour  float64
	wrong    []string
	failed   bool // the attack itself has found a fault
}

// probe is a submit of the victim, and the same one at a daemon that nobody attacks.
type probe struct{ took, control time.Duration }

type memoryOf struct{ before, peak, after int }

// watch measures until stop is called.
type watch struct {
	s     *scene
	c     *costs
	from  map[*daemon]int // lines of the log so far
	begin time.Time
	stop  context.CancelFunc
	wg    sync.WaitGroup
	ids   []string // submitted at root
}

// residentNow is like resident; for a daemon that may have ended it is 0.
func (d *daemon) residentNow() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(f[1])
	return pages * os.Getpagesize()
}

func (s *scene) attacked() []*daemon { return []*daemon{s.root, s.member} }

func (s *scene) watch(name string) *watch {
	w := &watch{s: s, c: &costs{name: name, memory: map[string]*memoryOf{}}, from: map[*daemon]int{}, begin: time.Now()}
	for _, d := range s.attacked() {
		now := d.residentNow()
		w.from[d], w.c.memory[d.name] = d.logged(), &memoryOf{before: now, peak: now}
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.wg.Go(func() { w.sample(ctx) })
	w.wg.Go(func() { w.probe(ctx) })
	return w
}

func (w *watch) sample(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, d := range w.s.attacked() {
			w.c.memory[d.name].peak = max(w.c.memory[d.name].peak, d.residentNow())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probe submits until ctx ends, and at least three times. Its tasks have no priority over the honest ones.
func (w *watch) probe(ctx context.Context) {
	for n := 0; n < 3 || ctx.Err() == nil; n++ {
		control := w.s.as(w.s.control, w.s.victim, "", "submit", "--priority", "20", "--", "true")
		r := w.s.as(w.s.root, w.s.victim, "", "submit", "--priority", "20", "--", "true")
		if control.code != 0 || r.code != 0 {
			w.c.wrong = append(w.c.wrong, fmt.Sprintf("another user's submit: exit %d after %s: %.200s%.200s", r.code, r.took.Round(time.Millisecond), r.stderr, control.stderr))
			continue
		}
		w.ids = append(w.ids, strings.TrimSpace(r.stdout))
		w.c.probes = append(w.c.probes, probe{r.took, control.took})
	}
}

// end stops the measuring and returns the results. calm are the same times without an attack, or nil.
func (w *watch) end(calm map[string]float64) *costs {
	w.stop()
	w.wg.Wait()
	c := w.c
	c.span = time.Since(w.begin)
	for _, d := range w.s.attacked() {
		select {
		case <-d.done:
			c.wrong = append(c.wrong, "the daemon "+d.name+" has ended")
			d.start()
		default:
		}
	}
	w.submits()
	w.logs(calm)
	w.sessions()
	for name, m := range c.memory {
		m.after = m.before
		for _, d := range w.s.attacked() {
			if d.name == name {
				m.after = d.residentNow()
			}
		}
		if grown := m.peak - m.before; grown > mostMemory {
			c.wrong = append(c.wrong, fmt.Sprintf("%s grew by %d MB", name, grown>>20))
		}
	}
	c.wrong = append(c.wrong, w.s.checkHonestTasks()...)
	c.wrong = append(c.wrong, w.ended()...)
	return c
}

// submits checks how long the victim waited. One in ten submits may coincide with a moment in which the host itself
// stood still.
func (w *watch) submits() {
	var over []time.Duration
	for _, p := range w.c.probes {
		over = append(over, p.took-p.control)
	}
	if len(over) == 0 {
		return
	}
	slices.Sort(over)
	if at := over[(len(over)-1)*9/10]; at > mostSubmit {
		w.c.wrong = append(w.c.wrong, fmt.Sprintf("another user's submit took %s more than elsewhere", at.Round(time.Millisecond)))
	}
}

// logs counts the bytes of each cause, which is the text of a line without its values.
func (w *watch) logs(calm map[string]float64) {
	c := w.c
	for _, d := range w.s.attacked() {
		for cause, n := range d.causes(w.from[d]) {
			c.logBytes += n
			n -= int(2*calm[cause]*float64(len(c.probes))) + firstLog
			if hour := float64(n) / c.span.Hours(); n > 0 && hour > c.logHour {
				c.logHour, c.logCause = hour, cause
			}
		}
	}
	if c.logHour > mostLog {
		c.wrong = append(c.wrong, fmt.Sprintf("the log grows by %.0f MB an hour of %q", c.logHour/(1<<20), c.logCause))
	}
}

// causes returns the bytes of the log from a line on, by cause.
func (d *daemon) causes(from int) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]int{}
	for _, line := range d.lines[from:] {
		all[causeOf(line)] += len(line) + 1
	}
	return all
}

func causeOf(line string) string {
	_, rest, ok := strings.Cut(line, "msg=")
	if !ok {
		return "lines without a cause"
	}
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		cause, _, _ := strings.Cut(quoted, `"`)
		return cause
	}
	cause, _, _ := strings.Cut(rest, " ")
	return cause
}

// sessions checks that the honest daemons have kept their session.
func (w *watch) sessions() {
	for _, d := range w.s.attacked() {
		other := w.s.root
		if d == other {
			other = w.s.member
		}
		id := string(w.s.peers[other])
		d.mu.Lock()
		for _, line := range d.lines[w.from[d]:] {
			if cause := causeOf(line); (cause == "session down" || cause == "session cut" || strings.HasPrefix(cause, "session closed")) && strings.Contains(line, "peer="+id) {
				w.c.wrong = append(w.c.wrong, d.name+": "+line)
			}
		}
		d.mu.Unlock()
	}
}

// ended waits until the tasks of the victim have run.
func (w *watch) ended() (wrong []string) {
	if len(w.ids) == 0 {
		return nil
	}
	r := w.s.as(w.s.root, w.s.victim, "", append([]string{"wait"}, w.ids...)...)
	if r.code != 0 {
		return []string{fmt.Sprintf("another user's tasks: exit %d after %s: %.300s", r.code, r.took.Round(time.Millisecond), r.stderr)}
	}
	return nil
}

// row is the row of an attack in the table.
func (c *costs) row() string {
	var took, control []time.Duration
	for _, p := range c.probes {
		took, control = append(took, p.took), append(control, p.control)
	}
	slices.Sort(took)
	slices.Sort(control)
	middle := func(all []time.Duration) string {
		if len(all) == 0 {
			return "none"
		}
		return fmt.Sprintf("%d / %d ms", all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
	}
	memory := func(name string) string {
		m := c.memory[name]
		return fmt.Sprintf("%d + %d MB", m.before>>20, (m.peak-m.before)>>20)
	}
	verdict := "held"
	if len(c.wrong) > 0 || c.failed {
		verdict = "**broken**"
	}
	return fmt.Sprintf("| %s | %.1f s | %s | %s | %s | %s | %d KB | %s |", c.name, c.span.Seconds(), middle(took), middle(control), memory("root"), memory("member"), c.logBytes>>10, verdict)
}

const tableHead = `| attack | lasts | another user's submit, p50 / longest | the same elsewhere | memory of root's daemon, before + more | of the member's | logs | bounds |
|---|---|---|---|---|---|---|---|`
