package fabric

// Topology files: nodes and the links between them, as YAML.
//
//	nodes:
//	  - {name: gpu1, kind: host}
//	  - {name: leaf1, kind: switch}
//	edges:
//	  - {from: gpu1, to: leaf1, latency: 1us, bandwidth: 25Gbps, loss: 0}

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/musterhq/muster/job/yamldoc"
)

// MaxFile bounds a topology file, in bytes.
const MaxFile = 64 << 20

// Parse reads a topology file. Hosts are numbered in the order of the file. Name is what errors call the file; they name
// the line and the field.
func Parse(name string, text []byte) (*Topology, error) {
	r := reader{index: map[string]int{}, joined: map[[2]int]int{}}
	if err := r.read(text); err != nil {
		return nil, r.explain(name, err)
	}
	t := r.topology()
	t.setTiers()
	if a, b := t.apart(); a >= 0 {
		line := r.nodes[r.index[t.Nodes[b].Name]].line
		return nil, fmt.Errorf("topology file %s:%d: nodes: host %s has no path to host %s", name, line, t.Nodes[b].Name, t.Nodes[a].Name)
	}
	return t, t.Validate()
}

// reader is the state of reading a file.
type reader struct {
	nodes  []fileNode
	edges  []Link         // their nodes by the order of the file
	index  map[string]int // of nodes
	joined map[[2]int]int // the line of the edge between two nodes
}

type fileNode struct {
	name string
	host bool
	line int
}

// lineError is an error at a line of the file.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

func at(n ast.Node, format string, args ...any) error {
	line := 0
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return &lineError{line: line, text: fmt.Sprintf(format, args...)}
}

// explain makes an error one line that begins with its position.
func (r *reader) explain(name string, err error) error {
	var own *lineError
	var syntax yaml.Error
	switch {
	case errors.As(err, &own) && own.line > 0:
		return fmt.Errorf("topology file %s:%d: %s", name, own.line, own.text)
	case errors.As(err, &syntax) && syntax.GetToken() != nil && syntax.GetToken().Position != nil:
		return fmt.Errorf("topology file %s:%d: %.200s", name, syntax.GetToken().Position.Line, oneLine(syntax.GetMessage()))
	}
	return fmt.Errorf("topology file %s: %.200s", name, oneLine(err.Error()))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// read reads the text. The YAML library panics on some malformed texts, which is an error here.
func (r *reader) read(text []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not valid YAML: %v", p)
		}
	}()
	if len(text) > MaxFile {
		return fmt.Errorf("larger than %d MiB", MaxFile>>20)
	}
	file, err := yamldoc.Parse(text, yamldoc.Bounds{Tokens: MaxFile, Keys: MaxFile})
	if err != nil {
		return err
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return errors.New("it is empty; want nodes and edges")
	}
	if len(file.Docs) > 1 {
		return at(file.Docs[1].Body, "there is a second document; want one")
	}
	top, err := fields(file.Docs[0].Body, "the file", "nodes", "edges")
	if err != nil {
		return err
	}
	nodes, err := list(file.Docs[0].Body, top["nodes"], "nodes")
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if err := r.node(n, fmt.Sprintf("nodes[%d]", i)); err != nil {
			return err
		}
	}
	edges, err := list(file.Docs[0].Body, top["edges"], "edges")
	if err != nil {
		return err
	}
	for i, n := range edges {
		if err := r.edge(n, fmt.Sprintf("edges[%d]", i)); err != nil {
			return err
		}
	}
	return r.bounds()
}

func (r *reader) bounds() error {
	hosts := 0
	for _, n := range r.nodes {
		if n.host {
			hosts++
		}
	}
	t := Topology{Nodes: make([]Node, len(r.nodes)), Hosts: hosts, Links: r.edges}
	return t.bounds()
}

// node reads an element of nodes.
func (r *reader) node(n ast.Node, field string) error {
	values, err := fields(n, field, "name", "kind")
	if err != nil {
		return err
	}
	name, err := text(n, values, field, "name")
	if err != nil {
		return err
	}
	if i, twice := r.index[name]; twice {
		return at(values["name"], "%s.name: %.60q is also in line %d", field, name, r.nodes[i].line)
	}
	kind, err := text(n, values, field, "kind")
	if err != nil {
		return err
	}
	if kind != "host" && kind != "switch" {
		return at(values["kind"], "%s.kind: %.60q: want host or switch", field, kind)
	}
	r.index[name] = len(r.nodes)
	r.nodes = append(r.nodes, fileNode{name: name, host: kind == "host", line: values["name"].GetToken().Position.Line})
	return nil
}

// edge reads an element of edges.
func (r *reader) edge(n ast.Node, field string) error {
	values, err := fields(n, field, "from", "to", "latency", "bandwidth", "loss")
	if err != nil {
		return err
	}
	l := Link{B: -1, Bandwidth: Gbps} // valid values, until those of the file are read
	if l.A, err = r.end(n, values, field, "from"); err != nil {
		return err
	}
	if l.B, err = r.end(n, values, field, "to"); err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return at(values["to"], "%s.to: %v", field, err)
	}
	word, err := text(n, values, field, "latency")
	if err != nil {
		return err
	}
	if l.Latency, err = time.ParseDuration(word); err != nil {
		return at(values["latency"], "%s.latency: %.40q: want a duration such as 2us or 1.5ms", field, word)
	}
	if err := l.check(); err != nil {
		return at(values["latency"], "%s: %v", field, err)
	}
	if word, err = text(n, values, field, "bandwidth"); err != nil {
		return err
	}
	if l.Bandwidth, err = ParseBandwidth(word); err != nil {
		return at(values["bandwidth"], "%s.bandwidth: %v", field, err)
	}
	if values["loss"] != nil {
		if word, err = text(n, values, field, "loss"); err != nil {
			return err
		}
		if l.Loss, err = strconv.ParseFloat(word, 64); err != nil {
			return at(values["loss"], "%s.loss: %.40q: want a number from 0 to 1", field, word)
		}
		if err := l.check(); err != nil {
			return at(values["loss"], "%s: %v", field, err)
		}
	}
	ends := [2]int{min(l.A, l.B), max(l.A, l.B)}
	if line, twice := r.joined[ends]; twice {
		return at(n, "%s: %s and %s are joined in line %d too: make it one edge with the sum of the bandwidth", field, r.nodes[l.A].name, r.nodes[l.B].name, line)
	}
	r.joined[ends] = values["from"].GetToken().Position.Line
	r.edges = append(r.edges, l)
	return nil
}

// end reads one of the two nodes of an edge.
func (r *reader) end(n ast.Node, values map[string]ast.Node, field, key string) (int, error) {
	name, err := text(n, values, field, key)
	if err != nil {
		return 0, err
	}
	i, known := r.index[name]
	if !known {
		return 0, at(values[key], "%s.%s: there is no node %.60q", field, key, name)
	}
	return i, nil
}

// topology puts the hosts first.
func (r *reader) topology() *Topology {
	t := &Topology{}
	place := make([]int, len(r.nodes))
	for _, hosts := range []bool{true, false} {
		for i, n := range r.nodes {
			if n.host == hosts {
				place[i] = len(t.Nodes)
				t.Nodes = append(t.Nodes, Node{Name: n.name})
			}
		}
		if hosts {
			t.Hosts = len(t.Nodes)
		}
	}
	t.Links = slices.Clone(r.edges)
	for i := range t.Links {
		t.Links[i].A, t.Links[i].B = place[t.Links[i].A], place[t.Links[i].B]
	}
	return t
}

// fields returns the values of a mapping by key. Only the known keys may be there, each once.
func fields(n ast.Node, field string, known ...string) (map[string]ast.Node, error) {
	m, ok := n.(ast.MapNode)
	if !ok {
		return nil, at(n, "%s: want %s", field, strings.Join(known, ", "))
	}
	values := map[string]ast.Node{}
	for it := m.MapRange(); it.Next(); {
		key := it.Key().GetToken().Value
		if !slices.Contains(known, key) {
			return nil, at(it.Key(), "%s.%.60s: unknown field; want %s", field, key, strings.Join(known, ", "))
		}
		if values[key] != nil {
			return nil, at(it.Key(), "%s.%s: it is there twice", field, key)
		}
		values[key] = it.Value()
	}
	return values, nil
}

// list returns the elements of a sequence.
func list(file, n ast.Node, field string) ([]ast.Node, error) {
	if n == nil {
		return nil, at(file, "%s: missing", field)
	}
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, at(n, "%s: want a list", field)
	}
	return s.Values, nil
}

// text returns a plain value.
func text(parent ast.Node, values map[string]ast.Node, field, key string) (string, error) {
	n := values[key]
	if n == nil {
		return "", at(parent, "%s.%s: missing", field, key)
	}
	switch v := n.(type) {
	case *ast.StringNode:
		if v.Value == "" || len(v.Value) > 253 || strings.ContainsFunc(v.Value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return "", at(n, "%s.%s: want 1 to 253 characters without line breaks", field, key)
		}
		return v.Value, nil
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, nil
	}
	return "", at(n, "%s.%s: want a plain value", field, key)
}
