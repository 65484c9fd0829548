package placing

// The figures of a run, by the part of the GPUs that the requests so far have asked for.

import "math"

// MaxPercent is the last bin. Requests that come when more has been asked for are placed, but do not count.
const MaxPercent = 130

// Result is the result of a run.
type Result struct {
	Policy     string
	Candidates int // 0: all
	Seed       int64
	Machines   int
	Milli      int // thousandths of all GPUs
	Placed     int
	Rejected   int
	Used       int // thousandths of GPUs that are allocated at the end
	Bins       [MaxPercent + 1]Bin
}

// Bin has means over some requests. The bin of a request is the percentage of all GPUs that the requests until its
// arrival had asked for, including rejected ones. It is rounded to the nearest number, and halves to the even one.
type Bin struct {
	Arrivals int
	Alloc    float64 // allocated, in percent of all GPUs
	Frag     float64 // idle and of no use to the usual requests, in percent of all GPUs
	Ratio    float64 // the same, in percent of what is idle
}

// At returns the figures once the requests have asked for this percentage of the GPUs. It returns false if no request
// came at this load.
func (r *Result) At(percent int) (Bin, bool) {
	if percent < 0 || percent > MaxPercent || r.Bins[percent].Arrivals == 0 {
		return Bin{}, false
	}
	return r.Bins[percent], true
}

// Last returns the bin of the highest load, and that load in percent.
func (r *Result) Last() (Bin, int) {
	for x := MaxPercent; x >= 0; x-- {
		if r.Bins[x].Arrivals > 0 {
			return r.Bins[x], x
		}
	}
	return Bin{}, 0
}

// meter adds up the figures during a run.
type meter struct {
	c         *cluster
	target    *target
	fragments []float64 // of each machine
	fragment  float64   // of all machines
	asked     int
	r         Result
}

func newMeter(c *cluster, t *target) *meter {
	m := &meter{c: c, target: t, fragments: make([]float64, len(c.machines))}
	for i := range c.machines {
		x := &c.machines[i]
		m.fragments[i] = t.fragment(x.model, x.cpu, x.left)
		m.fragment += m.fragments[i]
	}
	m.r.Machines, m.r.Milli = len(c.machines), c.milli
	return m
}

// arrived counts a request that was placed at a machine; if at is -1, it was rejected.
func (m *meter) arrived(r *request, at int) {
	m.asked += r.all()
	if at < 0 {
		m.r.Rejected++
	} else {
		m.r.Placed++
		m.r.Used += r.all()
		x := &m.c.machines[at]
		f := m.target.fragment(x.model, x.cpu, x.left)
		m.fragment += f - m.fragments[at]
		m.fragments[at] = f
	}
	x := int(math.RoundToEven(m.c.inPercent(float64(m.asked))))
	if x > MaxPercent {
		return
	}
	b := &m.r.Bins[x]
	b.Arrivals++
	b.Alloc += math.Round(100*m.c.inPercent(float64(m.r.Used))) / 100
	b.Frag += m.c.inPercent(m.fragment)
	if idle := m.c.milli - m.r.Used; idle > 0 {
		b.Ratio += 100 * m.fragment / float64(idle)
	}
}

// result returns the figures.
func (m *meter) result(cfg *Config) *Result {
	r := m.r
	r.Policy, r.Candidates, r.Seed = cfg.Policy, cfg.Candidates, cfg.Seed
	for i := range r.Bins {
		b := &r.Bins[i]
		if n := float64(b.Arrivals); n > 0 {
			b.Alloc, b.Frag, b.Ratio = b.Alloc/n, b.Frag/n, b.Ratio/n
		}
	}
	return &r
}
