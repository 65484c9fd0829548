// Package report is what a simulation prints. A Tally turns the records of a run into Figures while they stream. A
// Document holds the figures of all runs of one simulation. It is printed as a summary (Summary), as JSON (Write and
// Read), side by side with other documents (Compare), and as a page by package page. Log and ReadLog write and read the
// log of a run, and a Referee checks one.
//
// Everything here is computed from the load, the records and what the caller knows of the network. The same input gives
// the same bytes.
//
// A "job" in a figure is a job of one task, an element of an array, or a whole gang. Times are seconds from the
// beginning of the simulation, and spans are seconds. Parts are between 0 and 1.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// Schema names the form of a Document. Fields may be added to it, never renamed.
const Schema = "muster.simulation/v1"

// Document is everything about one simulation.
type Document struct {
	Schema   string    `json:"schema"`
	Command  string    `json:"command"` // as the user typed it
	Seed     uint64    `json:"seed"`
	Settings []Setting `json:"settings,omitempty"` // what was chosen, for people
	Cluster  Cluster   `json:"cluster"`
	// Runs[0] is muster's. The others are yardsticks, in the order in which they are printed.
	Runs        []Run        `json:"runs"`
	Network     *Network     `json:"network,omitempty"`     // of muster's run
	Information *Information `json:"information,omitempty"` // how muster's schedulers learned of capacity
	Gates       []Gate       `json:"gates,omitempty"`
}

// Setting is a choice, such as policy: frag.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Cluster is the size of what was simulated.
type Cluster struct {
	Machines int      `json:"machines"`
	GPUs     int      `json:"gpus"`
	CPUs     float64  `json:"cpus"`
	Memory   job.Size `json:"memory_bytes"`
}

// ClusterOf adds up the machines.
func ClusterOf(machines []load.Machine) Cluster {
	c := Cluster{Machines: len(machines)}
	cpus := 0
	for _, m := range machines {
		c.GPUs += m.GPUs
		cpus += m.CPUs
		c.Memory += m.Memory
	}
	c.CPUs = float64(cpus) / milli
	return c
}

// milli is the number of thousandths in one.
const milli = 1000

// Run is what one scheduler did with the load.
type Run struct {
	Name      string     `json:"name"`             // as in muster, fifo or easy; no two of a document are equal
	Policy    string     `json:"policy,omitempty"` // by which it chose machines
	Figures   *Figures   `json:"figures,omitempty"`
	Placement *Placement `json:"placement,omitempty"` // instead of figures, if requests never leave
}

// Placement is the outcome of an experiment in which requests arrive one at a time and never leave.
type Placement struct {
	Placed   int `json:"placed"`
	Rejected int `json:"rejected"`
	// part of all GPUs that is allocated once 100 % and 130 % of them have been asked for
	At100 float64 `json:"allocated_at_100"`
	At130 float64 `json:"allocated_at_130"`
	// part of all GPUs that is free and of no use to the usual requests, once 100 % have been asked for
	Fragments float64 `json:"fragments_at_100"`
	Curve     []Point `json:"curve,omitempty"` // by the part of all GPUs that has been asked for so far
}

// Information is what the schedulers' knowledge of free capacity cost, and how old it was.
type Information struct {
	Way         string  `json:"way"` // as in sessions or gossip-random
	Messages    int64   `json:"messages"`
	Bytes       int64   `json:"bytes"`
	LinkBytes   float64 `json:"bytes_per_link"`
	AgeMean     float64 `json:"age_mean_s"`
	AgeP99      float64 `json:"age_p99_s"`
	Reach99     float64 `json:"reach_99_s"` // until 99 % of the hosts know a version; with the DHT, of the schedulers
	Unreachable int     `json:"unreachable"`
	// only set on request; then everything else is about the news alone
	Stale     float64 `json:"stale_s,omitempty"`   // delay between arrival and belief
	Published int     `json:"published,omitempty"` // how often hosts told what is free
	Offers    int     `json:"offers,omitempty"`
	Declined  int     `json:"declined,omitempty"` // how many offers were declined
}

// Gate is an aim with a name, and whether a run meets it.
type Gate struct {
	Name string `json:"name"`
	Want string `json:"want"` // in words and numbers
	Got  string `json:"got"`
	Met  bool   `json:"met"`
}

// Tee is a record.Sink that passes each record to several sinks, in this order.
type Tee []record.Sink

// Take passes the record on.
func (t Tee) Take(r record.Record) {
	for _, s := range t {
		s.Take(r)
	}
}

// maxDocument bounds a document that is read.
const maxDocument = 256 << 20

// Write writes the document as one line of JSON. It sets the schema.
func Write(out io.Writer, d *Document) error {
	d.Schema = Schema
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(d)
}

// Read reads a document that Write has written, even if a later version has written further fields.
func Read(in io.Reader) (*Document, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("more than %d bytes: this is no document of a simulation", maxDocument)
	}
	d := &Document{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("not a document of muster simulate --json: %w", err)
	}
	if d.Schema != Schema {
		return nil, fmt.Errorf("schema %.40q: want %s, which muster simulate --json prints", d.Schema, Schema)
	}
	if len(d.Runs) == 0 || d.Runs[0].Figures == nil && d.Runs[0].Placement == nil {
		return nil, errors.New("runs: the document has no figures")
	}
	return d, nil
}
