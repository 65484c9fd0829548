package job

// Node lists: names of nodes as users write them, with globs and with lists of numbers as in Slurm.

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Nodes is a parsed list of nodes.
type Nodes struct {
	names    map[string]bool // without any special character
	ids      map[Peer]bool   // named with their IDs
	suffixes []int           // the different lengths of names that may be ends of peer IDs
	patterns []nodePattern
}

// Bounds of a node list.
const (
	maxNodes       = 1024 // entries
	maxPatterns    = 32   // of them with special characters: each is compared with every node
	maxNodeRanges  = 64   // in one list of numbers
	maxNodeDigits  = 9    // of a number
	minPeerSuffix  = 4    // characters of the end of a peer ID that may stand for it
	nodeListSyntax = "write it like n1, n*, n[1-3,7] or the id of a node"
)

// Pinned returns an entry with a node's name and ID. It matches only this node, even if another node takes the name.
func Pinned(name string, p Peer) string {
	if name == "" || strings.ContainsAny(name, nodeSpecial+"=") || len(name) > MaxName {
		return string(p)
	}
	return name + "=" + string(p)
}

// NodesText writes a list of nodes for people: without the IDs of pinned nodes.
func NodesText(list []string) string {
	names := make([]string, len(list))
	for i, text := range list {
		names[i], _, _ = strings.Cut(text, "=")
	}
	return strings.Join(names, ",")
}

// pinnedID returns the ID of an entry with a name and an ID.
func pinnedID(text string) (Peer, error) {
	name, id, _ := strings.Cut(text, "=")
	if name == "" || id == "" || strings.ContainsAny(text, nodeSpecial) {
		return "", fmt.Errorf("%.60q: write it like n1=ID", text)
	}
	return Peer(id), nil
}

// LiteralNode reports whether an entry of a list of nodes is a plain name, an ID or the end of an ID. A glob is not,
// and neither is an entry with a name and an ID, as Pinned returns.
func LiteralNode(text string) bool { return !strings.ContainsAny(text, nodeSpecial+"=") }

// GlobNode reports whether an entry of a list of nodes is a glob or has a list of numbers.
func GlobNode(text string) bool { return strings.ContainsAny(text, nodeSpecial) }

// nodeSpecial are the characters that make an entry more than a name.
const nodeSpecial = `*?[]\`

// ParseNodes parses a list of nodes. Each entry is a name, a glob, a peer ID, the end of one, a name and an ID with "="
// between them, or a name with a list of numbers such as n[1-3,7] or n[001-128]. Lists of numbers are not expanded:
// n[1-5000] costs no more than n1.
func ParseNodes(list []string) (Nodes, error) {
	if len(list) > maxNodes {
		return Nodes{}, fmt.Errorf("%d entries; at most %d", len(list), maxNodes)
	}
	ns := Nodes{names: map[string]bool{}, ids: map[Peer]bool{}}
	for _, text := range list {
		if text == "" || len(text) > 2*MaxName || !printable(text) {
			return Nodes{}, fmt.Errorf("%.60q: %s", text, nodeListSyntax)
		}
		if strings.Contains(text, "=") {
			id, err := pinnedID(text)
			if err != nil {
				return Nodes{}, err
			}
			ns.ids[id] = true
			continue
		}
		if !strings.ContainsAny(text, nodeSpecial) {
			ns.names[text] = true
			if len(text) >= minPeerSuffix && !slices.Contains(ns.suffixes, len(text)) {
				ns.suffixes = append(ns.suffixes, len(text))
			}
			continue
		}
		p, err := parseNodePattern(text)
		if err != nil {
			return Nodes{}, fmt.Errorf("%.60q: %w; %s", text, err, nodeListSyntax)
		}
		if ns.patterns = append(ns.patterns, p); len(ns.patterns) > maxPatterns {
			return Nodes{}, fmt.Errorf("more than %d entries with * ? or brackets", maxPatterns)
		}
	}
	return ns, nil
}

// Has reports whether the list has the node of this name and peer ID.
func (ns Nodes) Has(name string, p Peer) bool {
	if ns.names[name] || ns.ids[p] {
		return true
	}
	for _, n := range ns.suffixes {
		if n <= len(p) && ns.names[string(p[len(p)-n:])] {
			return true
		}
	}
	return slices.ContainsFunc(ns.patterns, func(x nodePattern) bool { return x.match(name) })
}

// nodePattern is a pattern for names as its parts, one after the other.
type nodePattern []nodePart

// nodePart is a part of a pattern. With ranges it matches a number of these ranges. If glob is "*" it matches any text.
// Otherwise it matches one character by the glob.
type nodePart struct {
	glob   string
	ranges []nodeRange
}

// nodeRange is the numbers from first to last. Each number is written with at least width digits.
type nodeRange struct {
	first, last, width int
}

// numberList is a list of numbers in brackets. Other brackets are those of a glob.
var numberList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\[([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)\]`)
})

// globPart is the first part of a glob, with backslashes and brackets.
var globPart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\\.|\[\^?(\\.|[^\]\\])+\]|[^\[\]\\])`)
})

func parseNodePattern(text string) (nodePattern, error) {
	var p nodePattern
	for text != "" {
		if m := numberList().FindStringSubmatch(text); m != nil {
			ranges, err := parseNodeRanges(m[1])
			if err != nil {
				return nil, err
			}
			p = append(p, nodePart{ranges: ranges})
			text = text[len(m[0]):]
			continue
		}
		glob := globPart().FindString(text)
		if _, err := path.Match(glob, "x"); err != nil || glob == "" {
			return nil, errors.New("a bracket or a backslash is out of place")
		}
		p = append(p, nodePart{glob: glob})
		text = text[len(glob):]
	}
	return p, nil
}

func parseNodeRanges(text string) ([]nodeRange, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxNodeRanges {
		return nil, fmt.Errorf("%d ranges in a list; at most %d", len(parts), maxNodeRanges)
	}
	out := make([]nodeRange, len(parts))
	for i, part := range parts {
		first, last, two := strings.Cut(part, "-")
		if !two {
			last = first
		}
		if len(first) > maxNodeDigits || len(last) > maxNodeDigits {
			return nil, fmt.Errorf("a number of more than %d digits", maxNodeDigits)
		}
		out[i].first, _ = strconv.Atoi(first) // digits alone
		out[i].last, _ = strconv.Atoi(last)
		out[i].width = len(first)
		if out[i].last < out[i].first {
			return nil, fmt.Errorf("the range %s ends before it begins", part)
		}
	}
	return out, nil
}

// match reports whether the parts match the whole name. It follows all possible matches at once, so that no pattern
// takes long.
func (p nodePattern) match(name string) bool {
	if len(name) > MaxName {
		return false
	}
	var now [MaxName + 1]bool // how much of the name the parts so far may match
	now[0] = true
	for _, x := range p {
		var next [MaxName + 1]bool
		some := false
		for i := range len(name) + 1 {
			if now[i] && x.from(name, i, &next) {
				some = true
			}
		}
		if !some {
			return false
		}
		now = next
	}
	return now[len(name)]
}

// from marks in ends where the part may end if it begins at i. It returns false if the part cannot begin there.
func (x nodePart) from(name string, i int, ends *[MaxName + 1]bool) (some bool) {
	switch {
	case x.glob == "*":
		for n := i; n <= len(name) && !ends[n]; n++ {
			ends[n] = true
		}
		return true
	case x.glob != "":
		_, size := utf8.DecodeRuneInString(name[i:])
		if size == 0 {
			return false
		}
		one := name[i : i+size]
		if some = one == x.glob; !some && strings.ContainsAny(x.glob, `?[\`) {
			some, _ = path.Match(x.glob, one)
		}
		ends[i+size] = ends[i+size] || some
		return some
	}
	for n := i + 1; n <= min(len(name), i+maxNodeDigits) && name[n-1] >= '0' && name[n-1] <= '9'; n++ {
		if x.hasNumber(name[i:n]) {
			ends[n], some = true, true
		}
	}
	return some
}

// hasNumber reports whether the digits are a number of the list, with as many zeros before it as the list has.
func (x nodePart) hasNumber(digits string) bool {
	n, _ := strconv.Atoi(digits)
	least := max(1, len(strings.TrimLeft(digits, "0")))
	return slices.ContainsFunc(x.ranges, func(r nodeRange) bool {
		return n >= r.first && n <= r.last && len(digits) == max(r.width, least)
	})
}
