package gossip

// A study: the same news by each way, with one row of figures for each.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/musterhq/muster/internal/sim/fabric"
)

// StudyConfig says what is compared.
type StudyConfig struct {
	Topology *fabric.Topology
	Fabric   fabric.Config
	News     Config
	Degree   int           // of the overlays that have one
	Every    time.Duration // mean time between two versions of a host's news, which are a Poisson process
	LookUps  time.Duration // between two look-ups of a host in the DHT
	For      time.Duration // virtual; beliefs are sampled each second after the first tenth
	Seed     uint64
}

// DefaultStudy compares overlays of degree 6 over ten minutes, when the capacity of a host changes every 10 s.
func DefaultStudy(t *fabric.Topology) StudyConfig {
	return StudyConfig{
		Topology: t, Fabric: fabric.DefaultConfig(), News: DefaultConfig(), Degree: 6, Every: 10 * time.Second,
		LookUps: 10 * time.Second, For: 10 * time.Minute, Seed: 1,
	}
}

// Row has the figures of one way to learn of capacity.
type Row struct {
	Name      string
	Edges     int // 0 for the DHT
	MaxDegree int
	Diameter  int     // in edges
	Mean      float64 // edges between two hosts
	EdgeHops  float64 // mean number of network links that an edge passes

	Messages float64 // a second and host, acknowledgements and answers included
	Bytes    float64 // a second and host, as sent by hosts
	Between  float64 // bytes a second, on all links between switches together
	Busiest  float64 // bytes a second, on the busiest link
	Figures
}

// source is a way to learn of capacity.
type source interface {
	Publish(host int, version uint32)
	Sample()
	Figures() Figures
}

// Study measures the random overlay, the spanning tree, the optimised overlay, and the DHT.
func Study(cfg StudyConfig) ([]Row, error) {
	if cfg.Every <= 0 || cfg.LookUps <= 0 || cfg.For <= 0 {
		return nil, fmt.Errorf("study: news every %v, look-ups every %v, for %v: want more than 0", cfg.Every, cfg.LookUps, cfg.For)
	}
	if err := cfg.News.Validate(); err != nil {
		return nil, err
	}
	still, err := fabric.New(cfg.Fabric, cfg.Topology, &fabric.Clock{})
	if err != nil {
		return nil, err
	}
	hosts := cfg.Topology.Hosts
	if hosts > MaxHosts {
		return nil, fmt.Errorf("study: %d hosts: at most %d are supported", hosts, MaxHosts)
	}
	var rows []Row
	for _, o := range []Overlay{
		Random(hosts, cfg.Degree, cfg.Seed), SpanningTree(still, hosts, cfg.Degree), Optimised(still, hosts, cfg.Degree, cfg.Seed),
	} {
		row, err := cfg.run(func(net *fabric.Fabric, c *fabric.Clock) (source, error) { return New(cfg.News, o, net, c, nil) })
		if err != nil {
			return nil, err
		}
		row.Name = o.Name
		row.describe(o, still)
		rows = append(rows, row)
	}
	row, err := cfg.run(func(net *fabric.Fabric, c *fabric.Clock) (source, error) {
		d, err := NewDHT(cfg.News, hosts, net, c, nil)
		if err == nil {
			cfg.lookUp(d, c)
		}
		return d, err
	})
	row.Name = "DHT"
	return append(rows, row), err
}

// lookUp makes each host look up every cfg.LookUps.
func (cfg StudyConfig) lookUp(d *DHT, c *fabric.Clock) {
	r := rand.New(rand.NewPCG(cfg.Seed, 0x6c6f6f6b))
	for h := range cfg.Topology.Hosts {
		var again func()
		again = func() {
			d.LookUp(h, nil)
			c.At(c.Now()+cfg.LookUps, again)
		}
		c.At(time.Duration(r.Int64N(int64(cfg.LookUps))), again)
	}
}

// run publishes the news by one way, and measures it.
func (cfg StudyConfig) run(build func(*fabric.Fabric, *fabric.Clock) (source, error)) (Row, error) {
	c := &fabric.Clock{}
	net, err := fabric.New(cfg.Fabric, cfg.Topology, c)
	if err != nil {
		return Row{}, err
	}
	s, err := build(net, c)
	if err != nil {
		return Row{}, err
	}
	r := rand.New(rand.NewPCG(cfg.Seed, 0x6e657773))
	for h := range cfg.Topology.Hosts {
		version := uint32(0)
		var publish func()
		publish = func() {
			version++
			s.Publish(h, version)
			c.At(c.Now()+time.Duration(r.ExpFloat64()*float64(cfg.Every)), publish)
		}
		c.At(time.Duration(r.Float64()*float64(cfg.For)/100), publish)
	}
	for t := cfg.For / 10; t <= cfg.For; t += time.Second {
		c.At(t, s.Sample)
	}
	c.Run(cfg.For)
	return cfg.measure(net, s), nil
}

// measure returns a row with the figures of the network.
func (cfg StudyConfig) measure(net *fabric.Fabric, s source) Row {
	row := Row{Figures: s.Figures()}
	seconds, hosts := cfg.For.Seconds(), float64(cfg.Topology.Hosts)
	stats := net.Stats()
	row.Messages = float64(stats.Messages) / seconds / hosts
	for _, l := range stats.Links {
		rate := float64(l.Control) / seconds
		row.Busiest = max(row.Busiest, rate)
		if l.From < cfg.Topology.Hosts {
			row.Bytes += rate / hosts
		}
		if l.From >= cfg.Topology.Hosts && l.To >= cfg.Topology.Hosts {
			row.Between += rate
		}
	}
	return row
}

// describe adds the shape of an overlay.
func (r *Row) describe(o Overlay, net *fabric.Fabric) {
	x := o.shape()
	r.Diameter, r.Mean = x.diameter, x.mean
	edges := o.edges()
	r.Edges = len(edges)
	for _, e := range edges {
		r.EdgeHops += float64(net.Hops(int(e.a), int(e.b))) / float64(len(edges))
	}
	for _, p := range o.Peers {
		r.MaxDegree = max(r.MaxDegree, len(p))
	}
}

// Table prints rows for people.
func Table(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "way\tmost peers\tdiameter\tlinks an edge\tmessages/s a host\tkB/s a host\tkB/s between switches\tkB/s busiest link\tage mean\tage p99\tdelay mean\tdelay p99\t99 % know, mean\tp99\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.0f\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Name, r.MaxDegree, r.Diameter, r.EdgeHops,
			r.Messages, r.Bytes/1000, r.Between/1000, r.Busiest/1000, brief(r.AgeMean), brief(r.AgeP99), brief(r.DelayMean), brief(r.DelayP99),
			brief(r.ReachMean), brief(r.ReachP99))
	}
	if err := w.Flush(); err != nil {
		return "" // a strings.Builder never fails
	}
	return b.String()
}

func brief(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }
