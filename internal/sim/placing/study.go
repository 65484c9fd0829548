package placing

// Studies: the experiment over several tables, policies, numbers of candidates and seeds.

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/musterhq/muster/internal/sim/load"
)

// Table is a table of requests. Lists of arrivals are made from it, and the usual requests are estimated from it.
type Table struct {
	Name     string
	Machines []load.Machine
	Requests []load.Request
	Pinned   bool // a third of its requests for GPUs ask for certain models
}

// Study is a set of runs. Each table is placed with each policy, each number of candidates and each seed.
type Study struct {
	Tables     []Table
	Policies   []string
	Candidates []int    // 0: all
	Yardsticks []string // further policies, which choose from all machines
	Seeds      []int64
	Workers    int                // runs at once; each takes one CPU
	Progress   func(done, of int) // as Config.Progress, in runs
}

// Figure has means over the seeds of a table, in percent of all GPUs.
type Figure struct {
	Table      string
	Pinned     bool
	Policy     string
	Candidates int
	Seeds      int
	At100      float64 // allocated when the requests have asked for all GPUs
	Spread     float64 // standard deviation of At100 between the seeds; 0 for one seed
	Last       float64 // allocated at the highest load
	Frag       float64 // of no use to the usual requests, when the requests have asked for all GPUs
}

// one is one run of a study.
type one struct {
	figure int // index in the figures
	cfg    Config
}

// Run returns the figures by table, policy and number of candidates, in the order of the study.
func (s *Study) Run(ctx context.Context) ([]Figure, error) {
	figures, runs, err := s.plan()
	if err != nil {
		return nil, err
	}
	results := make([]*Result, len(runs))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var all sync.WaitGroup
	var lock sync.Mutex
	done := 0
	for range max(1, s.Workers) {
		all.Go(func() {
			for i := range next {
				r, err := Run(ctx, runs[i].cfg)
				if err != nil {
					f := &figures[runs[i].figure]
					cancel(fmt.Errorf("table %s, policy %s, seed %d: %w", f.Table, f.Policy, runs[i].cfg.Seed, err))
					return
				}
				results[i] = r
				lock.Lock()
				if done++; s.Progress != nil {
					s.Progress(done, len(runs))
				}
				lock.Unlock()
			}
		})
	}
feed:
	for i := range runs {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for i := range figures {
		figures[i].mean(results, runs, i)
	}
	return figures, nil
}

// plan lists the figures, and the runs that they need.
func (s *Study) plan() ([]Figure, []one, error) {
	var figures []Figure
	var runs []one
	for _, t := range s.Tables {
		type list struct {
			arrivals []load.Request
			ranks    []int
		}
		lists := make([]list, len(s.Seeds))
		for i, seed := range s.Seeds {
			var err error
			if lists[i].arrivals, lists[i].ranks, err = Inflate(t.Machines, t.Requests, seed, Inflation); err != nil {
				return nil, nil, fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
		add := func(policy string, candidates int) {
			for i, seed := range s.Seeds {
				runs = append(runs, one{len(figures), Config{
					Machines: t.Machines, Arrivals: lists[i].arrivals, Ranks: lists[i].ranks, Workload: t.Requests,
					Policy: policy, Candidates: candidates, Seed: seed,
				}})
			}
			figures = append(figures, Figure{Table: t.Name, Pinned: t.Pinned, Policy: policy, Candidates: candidates, Seeds: len(s.Seeds)})
		}
		for _, p := range s.Policies {
			for _, d := range s.Candidates {
				add(p, d)
			}
		}
		for _, p := range s.Yardsticks {
			add(p, 0)
		}
	}
	if len(runs) == 0 {
		return nil, nil, fmt.Errorf("a study needs a table, a policy, a number of candidates and a seed")
	}
	return figures, runs, nil
}

// mean fills in a figure from its runs.
func (f *Figure) mean(results []*Result, runs []one, figure int) {
	var at100 []float64
	n := float64(f.Seeds)
	for i, r := range results {
		if runs[i].figure != figure {
			continue
		}
		b, _ := r.At(100)
		last, _ := r.Last()
		at100 = append(at100, b.Alloc)
		f.At100 += b.Alloc / n
		f.Frag += b.Frag / n
		f.Last += last.Alloc / n
	}
	if len(at100) < 2 {
		return
	}
	for _, x := range at100 {
		f.Spread += (x - f.At100) * (x - f.At100) / (n - 1)
	}
	f.Spread = math.Sqrt(f.Spread)
}

// find returns the figure of a table, policy and number of candidates.
func find(figures []Figure, table, policy string, candidates int) (Figure, bool) {
	i := slices.IndexFunc(figures, func(f Figure) bool {
		return f.Table == table && f.Policy == policy && f.Candidates == candidates
	})
	if i < 0 {
		return Figure{}, false
	}
	return figures[i], true
}

// each lists the distinct values of the figures, in their order.
func each[T comparable](figures []Figure, of func(Figure) T) []T {
	var out []T
	for _, f := range figures {
		if x := of(f); !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// WriteTable writes the allocation at 100 % as a table of Markdown: a row for each table of requests, a column for each
// policy and number of candidates, and a row with the means.
func WriteTable(w io.Writer, figures []Figure) error {
	type column struct {
		policy     string
		candidates int
	}
	columns := each(figures, func(f Figure) column { return column{f.Policy, f.Candidates} })
	tables := each(figures, func(f Figure) string { return f.Table })
	var head, rule strings.Builder
	head.WriteString("| table |")
	rule.WriteString("|---|")
	for _, c := range columns {
		head.WriteString(" " + named(c.policy, c.candidates) + " |")
		rule.WriteString("---|")
	}
	var text strings.Builder
	text.WriteString(head.String() + "\n" + rule.String() + "\n")
	sums := make([]float64, len(columns))
	for _, t := range tables {
		text.WriteString("| " + t + " |")
		for i, c := range columns {
			f, _ := find(figures, t, c.policy, c.candidates)
			fmt.Fprintf(&text, " %.2f |", f.At100)
			sums[i] += f.At100 / float64(len(tables))
		}
		text.WriteString("\n")
	}
	text.WriteString("| mean |")
	for _, x := range sums {
		fmt.Fprintf(&text, " %.2f |", x)
	}
	_, err := io.WriteString(w, text.String()+"\n")
	return err
}

// named returns the name of a policy, with the number of its candidates if there is a limit.
func named(policy string, candidates int) string {
	if candidates == 0 {
		return policy
	}
	return policy + " of " + strconv.Itoa(candidates)
}
