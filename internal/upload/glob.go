package upload

// Globs: which files of a task are asked for. The host that sends files and the client that gets them use the same rules.

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// maxAlternatives bounds the globs without braces that a glob with braces stands for.
const maxAlternatives = 1000

// Glob is a parsed glob below the directory of a task. It works like a file name pattern in a shell: a wildcard does
// not match a dot at the beginning of a name. All that lies below a match is asked for too.
type Glob struct {
	base    string // the directory that its first part without wildcards names
	literal bool   // it has no wildcards
	names   bool   // it has a letter or a digit: it names something
	ways    [][]string
}

// ParseGlob parses a glob. The glob "." means the whole directory.
func ParseGlob(text string) (Glob, error) {
	text = path.Clean(text)
	if !doublestar.ValidatePattern(text) {
		return Glob{}, fmt.Errorf("%.100q: not a glob", text)
	}
	base, pattern := doublestar.SplitPattern(text)
	g := Glob{base: base, literal: !strings.ContainsAny(pattern, `*?[{\`), names: strings.ContainsFunc(text, isWord)}
	all := []string{text}
	if !g.literal {
		var err error
		if all, err = alternatives(text); err != nil {
			return Glob{}, fmt.Errorf("%.100q: %w", text, err)
		}
	}
	for _, one := range all {
		g.ways = append(g.ways, strings.Split(one, "/"))
	}
	return g, nil
}

func isWord(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80
}

// Literal returns the path that the glob is, if it has no wildcards.
func (g Glob) Literal() (string, bool) {
	if !g.literal {
		return "", false
	}
	return strings.Join(g.ways[0], "/"), true
}

// Base returns the directory that the glob begins with, before its first wildcard; "." if there is none.
func (g Glob) Base() string { return g.base }

// Match reports whether a path is a match. For what is below a match, see Asked.
func (g Glob) Match(name string) bool { return g.match(name, false) }

// match reports whether a path is a match; with dots, a wildcard may also match a leading dot.
func (g Glob) match(name string, dots bool) bool {
	if g.literal {
		return slices.Equal(g.ways[0], strings.Split(name, "/"))
	}
	if name == g.base {
		return false
	}
	parts := strings.Split(name, "/")
	return slices.ContainsFunc(g.ways, func(way []string) bool { return matchParts(way, parts, dots) })
}

// matchParts matches the parts of a path; "**" matches any number of parts.
func matchParts(way, parts []string, dots bool) bool {
	if !slices.Contains(way, "**") {
		if len(way) != len(parts) {
			return false
		}
		for i, part := range parts {
			if !matchPart(way[i], part, dots) {
				return false
			}
		}
		return true
	}
	// ends[j] is whether the parts of the glob so far match the first j parts of the path.
	ends := make([]bool, len(parts)+1)
	ends[0] = true
	for _, want := range way {
		next := make([]bool, len(ends))
		for j := range ends {
			switch {
			case want == "**":
				next[j] = ends[j] || j > 0 && next[j-1] && matchPart("*", parts[j-1], dots)
			case j > 0:
				next[j] = ends[j-1] && matchPart(want, parts[j-1], dots)
			}
		}
		ends = next
	}
	return ends[len(parts)]
}

func matchPart(want, part string, dots bool) bool {
	if !dots && strings.HasPrefix(part, ".") && !strings.HasPrefix(want, ".") && !strings.HasPrefix(want, `\.`) {
		return false
	}
	return doublestar.MatchUnvalidated(want, part)
}

var errAlternatives = errors.New("too many alternatives in braces")

// alternatives returns the globs without braces that a glob stands for.
func alternatives(glob string) ([]string, error) {
	done, open := []string{}, []string{glob}
	for len(open) > 0 {
		one := open[len(open)-1]
		open = open[:len(open)-1]
		from, to, commas := firstBraces(one)
		if to == 0 {
			done = append(done, one)
		} else {
			for i, at := range commas {
				end := to
				if i+1 < len(commas) {
					end = commas[i+1]
				}
				open = append(open, one[:from]+one[at+1:end]+one[to+1:])
			}
		}
		if len(done)+len(open) > maxAlternatives {
			return nil, fmt.Errorf("%w: over %d", errAlternatives, maxAlternatives)
		}
	}
	return done, nil
}

// firstBraces returns where the first braces of a glob open and close, and where its alternatives begin: after the brace
// and after each comma. Without braces to is 0.
func firstBraces(glob string) (from, to int, begin []int) {
	depth, class := 0, false
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{':
			if depth++; depth == 1 {
				from, begin = i, []int{i}
			}
		case c == ',' && depth == 1:
			begin = append(begin, i)
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				return from, i, begin
			}
		}
	}
	return 0, 0, nil
}

// Asked is what a request for files asks for.
type Asked []Glob

// ParseAsked parses the globs of a request.
func ParseAsked(globs []string) (Asked, error) {
	var a Asked
	for _, text := range globs {
		g, err := ParseGlob(text)
		if err != nil {
			return nil, err
		}
		a = append(a, g)
	}
	return a, nil
}

// Of returns the match that the path is, or lies below, with its glob. Of several it returns the shortest, as the host
// does. If the path is not asked for only because of the dot of a hidden name, hidden is true.
func (a Asked) Of(name string) (match string, g Glob, hidden bool) {
	if match, g = a.find(name, false); match != "" {
		return match, g, false
	}
	match, _ = a.find(name, true)
	return "", Glob{}, match != ""
}

func (a Asked) find(name string, dots bool) (string, Glob) {
	for _, g := range a {
		if g.literal && g.ways[0][0] == "." {
			return ".", g
		}
	}
	for end := 0; end < len(name); end++ {
		next := strings.IndexByte(name[end:], '/')
		if next < 0 {
			next = len(name) - end
		}
		end += next
		for _, g := range a {
			if g.match(name[:end], dots) {
				return name[:end], g
			}
		}
	}
	return "", Glob{}
}
