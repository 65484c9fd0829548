package api

// The nodes that a job names. A name is what a node says of itself, and any member may take the name of another. So the
// daemon that accepts a job finds out which node a name means, and the job keeps its id.
// See docs/adr, ADR 113.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// pinNodes replaces the names of nodes in a job by the nodes that they mean now. A name that means several is an error, and
// so is a glob that matches the name of several. A name that means none stays as it is, and so does a glob: its node may come
// later. The warnings name those names, and what the job prefers although no node has it.
func (d *daemons) pinNodes(ctx context.Context, s *job.Spec) (warnings []string, err error) {
	names := constraintNames(s.Constraint)
	prefers := s.Preferences()
	if !slices.ContainsFunc(s.NodeList, byName) && !slices.ContainsFunc(s.Exclude, byName) && len(names) == 0 && len(prefers) == 0 {
		return nil, nil
	}
	members, err := d.peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	named := namedMembers{all: members, byName: map[string][]Member{}, byEnd: map[int]map[string][]int{}}
	for _, m := range members {
		named.byName[m.Name] = append(named.byName[m.Name], m)
	}
	if s.NodeList, err = named.pin("nodelist", s.NodeList); err != nil {
		return nil, err
	}
	if s.Exclude, err = named.pin("exclude", s.Exclude); err != nil {
		return nil, err
	}
	for _, name := range names {
		if found := named.byName[name]; len(found) > 1 {
			return nil, means("constraint: name", name, found, "name the node with --nodelist, by its id")
		}
	}
	return slices.Concat(unmeant("nodelist", s.NodeList), unmeant("exclude", s.Exclude), unmet(prefers, members)), nil
}

// unmet returns a warning about each preference that no member meets; none if it is not known what one of them has.
func unmet(prefers []job.Preference, members []Member) (warnings []string) {
	for i := range members {
		if len(prefers) == 0 || members[i].Profile.Peer == "" {
			return nil
		}
		f := contract.FactsOf(&members[i].Profile)
		prefers = slices.DeleteFunc(prefers, func(p job.Preference) bool {
			if p.Trusted {
				return p.Met(new(f.Trusted()))
			}
			return p.Met(&f)
		})
	}
	for _, p := range prefers {
		warnings = append(warnings, fmt.Sprintf("prefer: no node meets %s", quote(p.Text)))
	}
	return warnings
}

// unmeant returns a warning about the names of a list that mean no member; nil if there are none. The list is pinned.
func unmeant(field string, list []string) []string {
	const most = 8
	var names []string
	more := 0
	for _, text := range list {
		switch {
		case !job.LiteralNode(text):
		case len(names) == most:
			more++
		default:
			names = append(names, quote(text))
		}
	}
	if len(names) == 0 {
		return nil
	}
	text := field + ": no node goes by " + strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more names", more)
	}
	return []string{text}
}

// byName reports whether an entry of a list of nodes goes by names, and not only by an ID.
func byName(text string) bool { return job.LiteralNode(text) || job.GlobNode(text) }

// constraintNames returns the names of nodes that a constraint compares with.
func constraintNames(text string) (names []string) {
	c, err := job.ParseConstraint(text)
	if err != nil {
		return nil // the job was checked
	}
	for _, term := range c.Terms() {
		for _, x := range term.Comparisons() {
			if x.Name == "name" {
				names = append(names, x.Value)
			}
		}
	}
	return names
}

// namedMembers finds members by what users call them.
type namedMembers struct {
	all    []Member
	byName map[string][]Member
	byEnd  map[int]map[string][]int // indexes in all, by the length of the ends of IDs and by the ends
}

// pin returns a list of nodes whose names are pinned to the members that have them.
func (n namedMembers) pin(field string, list []string) ([]string, error) {
	if !slices.ContainsFunc(list, byName) {
		return list, nil
	}
	out := make([]string, 0, len(list))
	for _, text := range list {
		if !job.LiteralNode(text) {
			if err := n.unique(field, text); err != nil {
				return nil, err
			}
			out = append(out, text)
			continue
		}
		switch found := n.of(text); len(found) {
		case 0:
			out = append(out, text)
		case 1:
			out = append(out, job.Pinned(found[0].Name, found[0].Peer))
		default:
			return nil, means(field, text, found, "give its id")
		}
	}
	return out, nil
}

// unique returns an error if a glob matches a name that several members have.
func (n namedMembers) unique(field, glob string) error {
	if !job.GlobNode(glob) {
		return nil
	}
	parsed, err := job.ParseNodes([]string{glob})
	if err != nil {
		return bad("%s: %v", field, err)
	}
	for _, name := range slices.Sorted(maps.Keys(n.byName)) {
		if found := n.byName[name]; len(found) > 1 && parsed.Has(name, "") {
			return means(field+" "+quote(glob)+" matches", name, found, "give names without this one, or the ids of the nodes")
		}
	}
	return nil
}

// of returns the members that go by a text: by their name, or by the end of their ID, as in a list of nodes.
func (n namedMembers) of(text string) []Member {
	found := slices.Clone(n.byName[text])
	if len(text) < minIDPart {
		return found
	}
	for _, i := range n.endingIn(text) {
		m := &n.all[i]
		if string(m.Peer) == text {
			return []Member{*m}
		}
		if m.Name != text {
			found = append(found, *m)
		}
	}
	return found
}

// endingIn returns the members whose IDs end in a text. All ends of its length are indexed once, so a long list of names
// costs no more than the members.
func (n namedMembers) endingIn(text string) []int {
	ends := n.byEnd[len(text)]
	if ends == nil {
		ends = map[string][]int{}
		for i := range n.all {
			if id := string(n.all[i].Peer); len(id) >= len(text) {
				ends[id[len(id)-len(text):]] = append(ends[id[len(id)-len(text):]], i)
			}
		}
		n.byEnd[len(text)] = ends
	}
	return ends[text]
}

// means is the error of a text that means several members.
func means(what, text string, found []Member, advice string) error {
	list := make([]string, 0, len(found))
	for _, m := range found {
		list = append(list, string(m.Peer)+" ("+string(m.State)+")")
	}
	const most = 8
	if more := len(list) - most; more > 0 {
		list = append(list[:most], "and more")
	}
	return bad("%s %s: %d nodes go by that: %s; %s. A node that is gone for good is forgotten with `muster peers --revoke ID`", what, quote(text), len(found), strings.Join(list, ", "), advice)
}
