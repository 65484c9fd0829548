package fleet

// Misspelled names of nodes and labels: which names to suggest if no host has the given one.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

const (
	// maxNear bounds the names that are suggested for one that no host has.
	maxNear = 5
	// minModelWord is the least length of a word that is looked for in the classes of GPUs. A short one such as gb is in
	// most of them.
	minModelWord = 3
	// maxNearBytes bounds the names that are compared letter by letter.
	maxNearBytes = 64
)

// noSuchNode advises people that no host is in the list of nodes, and suggests names near the first entry.
func noSuchNode(entries []string) func(hosts []*Host) string {
	return func(hosts []*Host) string {
		names := make([]string, 0, len(hosts))
		for _, h := range hosts {
			names = append(names, h.Name())
		}
		name, _, pinned := strings.Cut(entries[0], "=")
		text := "no node has the name " + strconv.Quote(name)
		switch {
		case len(entries) > 1:
			text = "no node is in the list"
		case job.GlobNode(name):
			text = "no node has a name such as " + strconv.Quote(name)
		case pinned:
			text = "the node " + strconv.Quote(name) + " is not known, or runs no tasks"
		}
		return contract.Clip(text + meant(name, names, "nodes"))
	}
}

// noSuchLabel advises people that no host has a label of a term, and suggests labels near it. The advice is empty if
// the labels exist and only their values differ.
func noSuchLabel(term job.Term, trusted bool) func(hosts []*Host) string {
	return func(hosts []*Host) string {
		has := map[string]bool{}
		for _, h := range hosts {
			for label := range h.told.of(trusted).Labels {
				has[label] = true
			}
		}
		for _, c := range term.Comparisons() {
			if !c.Label || has[c.Name] {
				continue
			}
			signed := ""
			if trusted {
				signed = "signed "
			}
			labels := make([]string, 0, len(has))
			for label := range has {
				labels = append(labels, label)
			}
			text := "no node has the " + signed + "label " + strconv.Quote(c.Name)
			if model := modelIn(c, hosts); model != "" {
				return contract.Clip(text + "; for the model of a GPU write gpu.model=" + model)
			}
			return contract.Clip(text + meant(c.Name, labels, signed+"labels"))
		}
		return ""
	}
}

// modelIn returns the GPU model that a comparison with a label probably means, because its value or its name is part of
// the class of a host's GPU. The result is that word if gpu.model knows it, or else the whole class. It is empty if the
// comparison means no model.
func modelIn(c job.Comparison, hosts []*Host) string {
	for _, word := range []string{c.Value, c.Name} {
		if word = strings.ToLower(word); len(word) < minModelWord {
			continue
		}
		for _, h := range hosts {
			for _, g := range h.told.facts.Kinds {
				switch {
				case job.IsModel(g.Class, word):
					return word
				case strings.Contains(g.Class, word):
					return g.Class
				}
			}
		}
	}
	return ""
}

// meant suggests the names that the user may have meant, or else some of all names.
func meant(name string, all []string, what string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	such := nearTo(name, all)
	switch {
	case len(all) == 0:
		return "; there are no " + what
	case len(such) == 0:
		such = all[:min(len(all), maxNear)]
	}
	return "; give one that is there, such as " + strings.Join(such, ", ")
}

// nearTo returns the names that are nearest to name, at most maxNear: those that differ in a few letters, contain it,
// or are contained in it.
func nearTo(name string, all []string) []string {
	type scored struct {
		name string
		off  int
	}
	var near []scored
	name = strings.ToLower(name)
	few := max(1, min(len(name), maxNearBytes)/3)
	for _, other := range all {
		low := strings.ToLower(other)
		off := distance(name, low, few)
		if off > few && len(name) > 1 && len(low) > 1 && (strings.Contains(low, name) || strings.Contains(name, low)) {
			off = few
		}
		if off <= few && low != "" {
			near = append(near, scored{other, off})
		}
	}
	slices.SortStableFunc(near, func(a, b scored) int { return cmp.Compare(a.off, b.off) })
	out := make([]string, 0, maxNear)
	for _, n := range near[:min(len(near), maxNear)] {
		out = append(out, n.name)
	}
	return out
}

// distance returns how many letters must be changed, added or removed to turn one text into the other. It is most+1 if
// that is more than most, or if a text is longer than maxNearBytes.
func distance(a, b string, most int) int {
	if len(a) > maxNearBytes || len(b) > maxNearBytes || max(len(a)-len(b), len(b)-len(a)) > most {
		return most + 1
	}
	var row [maxNearBytes + 1]int
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := min(row[j], row[j+1]) + 1
			if a[i] == b[j] {
				d = min(d, diagonal)
			} else {
				d = min(d, diagonal+1)
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return min(row[len(b)], most+1)
}
