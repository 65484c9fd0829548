package sim
import ("testing";"time";"context";"fmt")
func TestDbg(t *testing.T) {
	cfg := halved(small(), 0)
	for i := range cfg.Load.Jobs {
		cfg.Load.Jobs[i].Runs *= 3
	}
	cfg.Horizon = 6*time.Hour
	cfg.Faults = []Fault{{At: 4 * time.Minute, Kind: Break, Part: "middle", For: 10 * time.Minute}}
	w, _ := New(cfg)
	n := 0
	cfg2 := &w.cfg
	cfg2.Progress = func(p Progress) { if n++; n%20 == 0 { fmt.Println(p) } }
	r, err := w.Run(context.Background())
	fmt.Printf("%+v %v\n", r, err)
	for _, s := range w.works {
		if s.left > 0 {
			x, ok := s.owner.core.Job(s.id)
			fmt.Println(s.index, s.nodes, s.left, s.accepted, ok)
			for i, tk := range x.Tasks { fmt.Println("  ", i, tk.State, tk.Reason, tk.Attempt, tk.Node, s.elements[i/max(s.nodes,1)].ended) 
			e := s.elements[i/max(s.nodes,1)]
			if e.stint != nil { fmt.Printf("   %+v\n", *e.stint); for _, p := range e.stint.procs { fmt.Println("   ", p.attempt, p.begun, p.over, p.killing, p.why, p.endsAt, p.reason)} } }
		}
	}
}
