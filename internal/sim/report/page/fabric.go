package page

// The picture of a network: its switches in tiers, the hosts below the switches to which they are joined, and each link
// in the color of its use.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/sim/report"
)

const (
	heats   = 8   // colors
	boxHigh = 16  // of a switch
	tierGap = 110 // between tiers
	rackGap = 4
)

// heatOf returns the color of a link's use, relative to that of the busiest one.
func heatOf(used, most float64) int {
	if most <= 0 {
		return 0
	}
	return min(heats-1, int(used/most*heats))
}

func heatInk(i int) ink { return ink(fmt.Sprintf("heat%d", i)) }

// drawing is a network with the places of its parts.
type drawing struct {
	net    *report.Network
	most   float64      // use of the busiest link
	tiers  [][]int      // switches by tier, the hosts' first
	at     []point      // middle of each switch
	width  []float64    // of its box
	hosts  [][]hostCell // by switch
	cell   float64      // size of a host
	height float64
}

// hostCell is a host and the use of its link.
type hostCell struct {
	machine int
	used    float64
}

// fabricChart draws the network. It returns an empty text if the network has no switches.
func fabricChart(n *report.Network) string {
	if len(n.Switches) == 0 {
		return ""
	}
	d := &drawing{net: n, at: make([]point, len(n.Switches)), width: make([]float64, len(n.Switches)), hosts: make([][]hostCell, len(n.Switches))}
	d.measure()
	d.place()
	p := newPicture(wide, d.height)
	d.links(p)
	d.switches(p)
	d.cells(p)
	return p.svg("the network: switches, hosts, and the use of each link")
}

// measure sorts switches into tiers and hosts below switches.
func (d *drawing) measure() {
	used := map[int]float64{} // by machine
	for _, l := range d.net.Links {
		d.most = max(d.most, l.Used)
		for _, e := range []report.End{l.A, l.B} {
			if e.Machine >= 0 {
				used[e.Machine] = max(used[e.Machine], l.Used)
			}
		}
	}
	for m, s := range d.net.Racks {
		if s >= 0 && s < len(d.hosts) {
			d.hosts[s] = append(d.hosts[s], hostCell{m, used[m]})
		}
	}
	const mostTiers = 16
	top := 1
	for _, s := range d.net.Switches {
		top = min(max(top, s.Tier), mostTiers)
	}
	d.tiers = make([][]int, top)
	for i, s := range d.net.Switches {
		t := min(max(s.Tier, 1), top) - 1
		d.tiers[t] = append(d.tiers[t], i)
	}
	d.tiers = slices.DeleteFunc(d.tiers, func(t []int) bool { return len(t) == 0 })
}

// place gives each switch its place: the tiers from the top, each over the whole width.
func (d *drawing) place() {
	leaves := d.tiers[0]
	column := float64(wide) / float64(len(leaves))
	most := 1
	for _, s := range leaves {
		most = max(most, len(d.hosts[s]))
	}
	// Cells are as large as possible while the rack with most hosts is at most twice as high as wide, or 120 points
	// high.
	high := max(120, 2*column)
	d.cell = 2
	for size := 12.0; size >= 2; size -= 0.5 {
		across := math.Floor((column - rackGap) / size)
		if across >= 1 && math.Ceil(float64(most)/across)*size <= high {
			d.cell = size
			break
		}
	}
	across := max(1, int((column-rackGap)/d.cell))
	below := float64((most+across-1)/across)*d.cell + 8
	d.height = below + boxHigh + float64(len(d.tiers)-1)*tierGap + 4
	for t, tier := range d.tiers {
		y := d.height - below - boxHigh/2 - float64(t)*tierGap
		step := float64(wide) / float64(len(tier))
		for i, s := range tier {
			d.at[s] = point{step * (float64(i) + 0.5), y}
			d.width[s] = min(step-rackGap, 96)
			if t == 0 {
				d.width[s] = column - rackGap
			}
		}
	}
}

// links draws the links between switches, the most used ones on top. Links of one color are one path.
func (d *drawing) links(p *picture) {
	var paths [heats]path
	for _, l := range d.net.Links {
		if l.A.Switch < 0 || l.B.Switch < 0 || l.A.Switch >= len(d.at) || l.B.Switch >= len(d.at) {
			continue
		}
		above, below := d.at[l.A.Switch], d.at[l.B.Switch]
		if above.y > below.y {
			above, below = below, above
		}
		paths[heatOf(l.Used, d.most)].line(point{above.x, above.y + boxHigh/2}, point{below.x, below.y - boxHigh/2})
	}
	for h := range paths {
		p.stroke(heatInk(h), 0.8+0.25*float64(h), &paths[h])
	}
}

// switches draws the boxes, with the name of the switch if it fits.
func (d *drawing) switches(p *picture) {
	var boxes path
	for i, at := range d.at {
		boxes.box(at.x-d.width[i]/2, at.y-boxHigh/2, d.width[i], boxHigh)
	}
	p.fillPath("box", &boxes)
	for i, s := range d.net.Switches {
		for _, name := range []string{s.Name, shortName(s.Name)} {
			if textWidth(name) < d.width[i]-4 {
				p.text("fg", atMiddle, d.at[i], name)
				break
			}
		}
	}
}

// shortName returns the number at the end of a name.
func shortName(name string) string {
	return name[len(strings.TrimRight(name, "0123456789")):]
}

// cells draws the hosts of each rack. Hosts of one color are one path.
func (d *drawing) cells(p *picture) {
	var paths [heats]path
	for s, hosts := range d.hosts {
		across := max(1, int(d.width[s]/d.cell))
		x0 := d.at[s].x - float64(min(across, len(hosts)))*d.cell/2
		y0 := d.at[s].y + boxHigh/2 + 4
		for i, h := range hosts {
			gap := d.cell / 8
			paths[heatOf(h.used, d.most)].box(x0+float64(i%across)*d.cell+gap, y0+float64(i/across)*d.cell+gap, d.cell-2*gap, d.cell-2*gap)
		}
	}
	for h := range paths {
		p.fillPath(heatInk(h), &paths[h])
	}
}
