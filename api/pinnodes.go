package api

// The nodes that a job names. A node chooses its name itself, and any member could take the name of another one. So the
// daemon that accepts a job looks up the nodes by their names, and stores their ids in the job.
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

// pinNodes replaces the names of nodes in a job by the nodes that have these names now. A name that several nodes have is
// an error, and so is a glob that matches such a name. A name that no node has stays as it is, because its node may join
// later. So does a glob. The warnings list the names that no node has, and the preferences that no node meets.
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

// unmet returns a warning about each preference that no member meets. It returns none if the profile of a member is not
// known.
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

// unmeant returns a warning about the names of a pinned list that no member has; nil if there are none.
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

// byName reports whether an entry of a list of nodes is a name or a glob of names.
func byName(text string) bool { return job.LiteralNode(text) || job.GlobNode(text) }

// constraintNames returns the names of nodes that a constraint compares with.
func constraintNames(text string) (names []string) {
	c, err := job.ParseConstraint(text)
	if err != nil {
		return nil // never happens: the job was checked
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

// namedMembers finds members by name, or by the end of their ID.
type namedMembers struct {
	all    []Member
	byName map[string][]Member
	byEnd  map[int]map[string][]int // indexes in all, by the length of the end of the ID, then by that end
}

// pin returns the list with each name pinned to the member that has it.
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

// of returns the members whose name is the text, or whose ID ends with it.
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

// means returns the error for a text that names several members.
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
