package report

// The log of a run: a line of JSON for each record, in the order of time.
//
//	{"t":12.5,"event":"start","job":"job-00007","alloc":[{"node":"node-003","gpus":[0,1]}]}
//	{"t":99.0,"event":"preempt","job":"job-00007"}
//	{"t":160.0,"event":"lost","job":"job-00007"}
//	{"t":500.0,"event":"finish","job":"job-00007"}
//
// t is in seconds. An element of an array also has "task", its position in the array. gpus is empty for a task without
// GPUs. On a network of switches a start also says what each task on another host costs: the links to it and the switches
// on the way, how long a message takes, and the files that came for it and how long it waited for them:
//
//	{"node":"node-003","gpus":[0,1],"hops":4,"path":"leaf0 spine1 leaf2","path_s":0.0000074,"bytes":1048576,"files_s":0.01}
//
// "lost" is the end of a run by a fault, and "reject" that of a job that was refused or has failed for good. A
// shared device is written as any other: its share is in the load.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// Log is a record.Sink that writes the log of a run.
type Log struct {
	out   *bufio.Writer
	load  *load.Load
	nodes [][]byte // names of machines, as JSON
	net   []string // names of the nodes of the network; nil: what tasks on other hosts cost is not written
	line  []byte
	err   error
}

// On makes the log include what tasks on other hosts cost. nodes are the names of the network's nodes, hosts before
// switches. On is called before the first record.
func (g *Log) On(nodes []string) { g.net = nodes }

// NewLog returns a Log for a run of the load.
func NewLog(out io.Writer, l *load.Load) *Log {
	g := &Log{out: bufio.NewWriterSize(out, 1<<16), load: l, nodes: make([][]byte, len(l.Machines))}
	for i, m := range l.Machines {
		g.nodes[i] = appendText(nil, m.Name)
	}
	return g
}

// Take writes a record.
func (g *Log) Take(r record.Record) {
	b := append(g.line[:0], `{"t":`...)
	b = appendTime(b, r.At)
	b = append(b, `,"event":"`...)
	b = append(b, r.Kind...)
	b = append(b, `","job":`...)
	j := &g.load.Jobs[r.Job]
	b = appendText(b, j.Name)
	if j.Spec.Array != "" || len(j.Spec.EachLine) > 0 {
		b = strconv.AppendInt(append(b, `,"task":`...), int64(r.Task), 10)
	}
	if r.Kind == record.Start {
		b = append(b, `,"alloc":[`...)
		for i := range r.Alloc {
			if i > 0 {
				b = append(b, ',')
			}
			b = g.appendAlloc(b, &r.Alloc[i])
		}
		b = append(b, ']')
	}
	b = append(b, '}', '\n')
	g.line = b
	if _, err := g.out.Write(b); err != nil && g.err == nil {
		g.err = err
	}
}

// appendAlloc appends what a task holds of a machine.
func (g *Log) appendAlloc(b []byte, a *record.Alloc) []byte {
	b = append(append(b, `{"node":`...), g.nodes[a.Machine]...)
	b = append(b, `,"gpus":[`...)
	for k, d := range a.Devices {
		if k > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(d), 10)
	}
	b = append(b, ']')
	if g.net != nil && a.Hops > 0 {
		b = g.appendWay(b, a)
	}
	return append(b, '}')
}

// appendWay appends what a task on another host costs.
func (g *Log) appendWay(b []byte, a *record.Alloc) []byte {
	b = strconv.AppendInt(append(b, `,"hops":`...), int64(a.Hops), 10)
	if path := a.Way.Path; len(path) > 1 {
		b = appendText(append(b, `,"path":`...), PathName(g.net, path[1:len(path)-1]))
	}
	b = appendTime(append(b, `,"path_s":`...), a.Way.Latency)
	if a.Way.Bytes > 0 {
		b = strconv.AppendInt(append(b, `,"bytes":`...), a.Way.Bytes, 10)
	}
	if a.Way.Waited > 0 {
		b = appendTime(append(b, `,"files_s":`...), a.Way.Waited)
	}
	return b
}

// Close writes what is buffered. It returns the first error of the log. It does not close the writer.
func (g *Log) Close() error { return errors.Join(g.err, g.out.Flush()) }

// appendTime appends seconds with as many digits as needed, and at least one after the point.
func appendTime(b []byte, t time.Duration) []byte {
	b = strconv.AppendInt(b, int64(t/time.Second), 10)
	rest := strconv.Itoa(int(time.Second + t%time.Second))[1:]
	n := len(rest)
	for n > 1 && rest[n-1] == '0' {
		n--
	}
	return append(append(b, '.'), rest[:n]...)
}

// appendText appends a string of JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string is always valid
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// maxLine bounds a line of a log that is read: a gang of 512 machines with long names fits.
const maxLine = 4 << 20

// line is a line of a log.
type line struct {
	T     json.Number  `json:"t"`
	Event record.Kind  `json:"event"`
	Job   string       `json:"job"`
	Task  int          `json:"task"`
	Alloc []allocation `json:"alloc"`
}

type allocation struct {
	Node string `json:"node"`
	GPUs []int  `json:"gpus"`
	cost
}

// cost is what a task on another host costs. ReadLog ignores it.
type cost struct {
	Hops  int         `json:"hops"`
	Path  string      `json:"path"`
	Way   json.Number `json:"path_s"`
	Bytes int64       `json:"bytes"`
	Files json.Number `json:"files_s"`
}

// ReadLog reads the log of a run of the load, and calls take with each record in it. It stops at the first line that it
// cannot read or that take refuses; the error says which. What tasks on other hosts cost is left out.
func ReadLog(in io.Reader, l *load.Load, take func(record.Record) error) error {
	names := &names{jobs: make(map[string]int, len(l.Jobs)), nodes: make(map[string]int, len(l.Machines))}
	for i := range l.Jobs {
		names.jobs[l.Jobs[i].Name] = i
	}
	for i, m := range l.Machines {
		names.nodes[m.Name] = i
	}
	if len(names.jobs) < len(l.Jobs) || len(names.nodes) < len(l.Machines) {
		return errors.New("two jobs or two machines of the load have the same name: a log does not say which is meant")
	}
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 0, 1<<16), maxLine)
	n := 0
	for s.Scan() {
		n++
		r, err := names.record(s.Bytes(), l)
		if err == nil {
			err = take(r)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// names finds jobs and machines by their names.
type names struct{ jobs, nodes map[string]int }

func (x *names) record(text []byte, l *load.Load) (record.Record, error) {
	var in line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return record.Record{}, err
	}
	at, err := parseTime(in.T)
	if err != nil {
		return record.Record{}, fmt.Errorf("t: %w", err)
	}
	if !slices.Contains([]record.Kind{record.Start, record.Preempt, record.Lost, record.Finish, record.Reject}, in.Event) {
		return record.Record{}, fmt.Errorf("event %.40q: want start, preempt, lost, finish or reject", in.Event)
	}
	j, known := x.jobs[in.Job]
	if !known {
		return record.Record{}, fmt.Errorf("job %.80q: the load has no such job", in.Job)
	}
	r := record.Record{At: at, Kind: in.Event, Job: j, Task: in.Task}
	share := gpu.Milli(l.Jobs[j].Spec.Resources)
	for _, a := range in.Alloc {
		m, known := x.nodes[a.Node]
		if !known {
			return record.Record{}, fmt.Errorf("node %.80q: the load has no such machine", a.Node)
		}
		r.Alloc = append(r.Alloc, record.Alloc{Machine: m, Devices: a.GPUs, Milli: share})
	}
	return r, nil
}

// parseTime reads seconds, to the nearest nanosecond.
func parseTime(n json.Number) (time.Duration, error) {
	s, err := n.Float64()
	if err != nil {
		return 0, err
	}
	if s < 0 || s > math.MaxInt64/float64(time.Second)/2 {
		return 0, fmt.Errorf("%s: want seconds from the beginning", n)
	}
	whole := math.Floor(s)
	return time.Duration(whole)*time.Second + time.Duration(math.Round((s-whole)*1e9)), nil
}
