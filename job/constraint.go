package job

// Constraints: expressions over the labels of a node and the facts that it tells, such as rack=r1&gpu.memory>=40GB.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Constraint is a parsed expression. The zero value is met by every node.
//
//	expr = all { "|" all }
//	all  = one { "&" one }
//	one  = "!" one | "(" expr ")" | NAME [ OP VALUE ]
//	OP   = "=" | "!=" | "<" | "<=" | ">" | ">="
//
// NAME is a fact (see factTable) or else a label. See docs/adr, ADR 85.
type Constraint struct{ terms []Term }

// Bounds of an expression.
const (
	maxConstraint      = 1024 // bytes
	maxConstraintDepth = 32   // nested parentheses and negations
	maxComparisons     = 32   // each may be a line of an explanation
)

// ParseConstraint parses an expression. An empty expression is met by every node.
func ParseConstraint(text string) (Constraint, error) {
	if strings.TrimSpace(text) == "" {
		return Constraint{}, nil
	}
	if len(text) > maxConstraint {
		return Constraint{}, fmt.Errorf("constraint: %d bytes; at most %d", len(text), maxConstraint)
	}
	p := constraintParser{text: text, rest: text}
	whole, err := p.any(0)
	if err == nil && p.peek() != 0 {
		err = p.unexpected()
	}
	if err != nil {
		return Constraint{}, fmt.Errorf("constraint %.60q: at character %d: %w", text, len(text)-len(p.rest)+1, err)
	}
	return Constraint{terms: whole.terms()}, nil
}

// Met reports whether a node with these facts meets the constraint.
func (c Constraint) Met(f *Facts) bool {
	return !slices.ContainsFunc(c.terms, func(t Term) bool { return !t.Met(f) })
}

// Terms returns the terms that must all hold, in the order in which they were written.
func (c Constraint) Terms() []Term { return c.terms }

// Term is a part of an expression.
type Term struct {
	Text string // as it was written
	cond condition
}

// Met reports whether the term holds for a node with these facts.
func (t Term) Met(f *Facts) bool { return t.cond.holds(f) == Yes }

// Has says what the node has of all that the term compares: "has rack=r2", "has no GPU".
func (t Term) Has(f *Facts) string {
	all := t.cond.comparisons(nil)
	var said []string
	for _, c := range all {
		if has := c.has(f, len(all) > 1); !slices.Contains(said, has) {
			said = append(said, has)
		}
	}
	return strings.Join(said, ", ")
}

// AnyOf returns the comparisons of which one must hold. It is empty if the term is more than a comparison or a list of
// them.
func (t Term) AnyOf() []Comparison {
	list := anyOf{t}
	if l, ok := t.cond.(anyOf); ok {
		list = l
	}
	out := make([]Comparison, len(list))
	for i, t := range list {
		c, ok := t.cond.(*comparison)
		if !ok {
			return nil
		}
		out[i] = c.Comparison
	}
	return out
}

// Comparisons returns all comparisons of the term.
func (t Term) Comparisons() []Comparison {
	all := t.cond.comparisons(nil)
	out := make([]Comparison, len(all))
	for i, c := range all {
		out[i] = c.Comparison
	}
	return out
}

// terms returns the terms that must all hold.
func (t Term) terms() []Term {
	if all, ok := t.cond.(allOf); ok {
		return all
	}
	return []Term{t}
}

// condition is a node of a parsed expression.
type condition interface {
	holds(f *Facts) Truth
	comparisons(to []*comparison) []*comparison // appends those of the condition
}

type (
	allOf []Term
	anyOf []Term
	not   struct{ Term }
)

func (c allOf) holds(f *Facts) Truth {
	least := Yes
	for _, t := range c {
		least = min(least, t.cond.holds(f))
	}
	return least
}

func (c anyOf) holds(f *Facts) Truth {
	most := No
	for _, t := range c {
		most = max(most, t.cond.holds(f))
	}
	return most
}

func (c not) holds(f *Facts) Truth { return -c.cond.holds(f) }

func (c allOf) comparisons(to []*comparison) []*comparison { return comparisonsOf(c, to) }
func (c anyOf) comparisons(to []*comparison) []*comparison { return comparisonsOf(c, to) }
func (c not) comparisons(to []*comparison) []*comparison   { return c.cond.comparisons(to) }

func comparisonsOf(terms []Term, to []*comparison) []*comparison {
	for _, t := range terms {
		to = t.cond.comparisons(to)
	}
	return to
}

// constraintParser reads an expression. An error refers to the position where rest begins.
type constraintParser struct {
	text, rest string
	found      int // comparisons
}

// peek skips blanks and returns the next byte, or 0 at the end.
func (p *constraintParser) peek() byte {
	p.rest = strings.TrimLeft(p.rest, " \t")
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

// take consumes the operator if it comes next, and reports whether it did.
func (p *constraintParser) take(op byte) bool {
	if p.peek() != op {
		return false
	}
	p.rest = strings.TrimPrefix(p.rest[1:], string(op)) // && means &, || means |
	return true
}

// unexpected returns the error for the text that comes next.
func (p *constraintParser) unexpected() error {
	switch p.peek() {
	case 0:
		return errors.New("it ends where a name was expected")
	case ',':
		return errors.New("unexpected ','; write & for and, | for or")
	}
	return fmt.Errorf("unexpected %.20q; write it like 'rack=r1&gpu.memory>=40GB'", p.rest)
}

// since returns the term whose text was read since rest was from.
func (p *constraintParser) since(from string, c condition) Term {
	return Term{Text: strings.TrimSpace(from[:len(from)-len(p.rest)]), cond: c}
}

func (p *constraintParser) any(depth int) (Term, error) {
	p.peek()
	from := p.rest
	first, err := p.all(depth)
	alternatives := anyOf{first}
	for err == nil && p.take('|') {
		var t Term
		t, err = p.all(depth)
		alternatives = append(alternatives, t)
	}
	if len(alternatives) == 1 {
		return first, err
	}
	return p.since(from, alternatives), err
}

func (p *constraintParser) all(depth int) (Term, error) {
	p.peek()
	from := p.rest
	first, err := p.one(depth)
	if err != nil || p.peek() != '&' {
		return first, err
	}
	terms := allOf(slices.Clone(first.terms()))
	for err == nil && p.take('&') {
		var t Term
		if t, err = p.one(depth); err == nil {
			terms = append(terms, t.terms()...)
		}
	}
	return p.since(from, terms), err
}

func (p *constraintParser) one(depth int) (Term, error) {
	if depth > maxConstraintDepth {
		return Term{}, fmt.Errorf("parentheses and ! are nested more than %d deep", maxConstraintDepth)
	}
	switch c := p.peek(); c {
	case '!':
		from := p.rest
		p.rest = p.rest[1:]
		inner, err := p.one(depth + 1)
		return p.since(from, not{inner}), err
	case '(':
		from := p.rest
		p.rest = p.rest[1:]
		inner, err := p.any(depth + 1)
		if err == nil && p.peek() != ')' {
			err = errors.New("a ) is missing")
		}
		if err != nil {
			return Term{}, err
		}
		p.rest = p.rest[1:]
		return p.since(from, inner.cond), nil
	}
	return p.comparison()
}

func (p *constraintParser) comparison() (Term, error) {
	from := p.rest
	c := &comparison{Comparison: Comparison{Name: p.word()}}
	if c.Name == "" {
		return Term{}, p.unexpected()
	}
	after := p.rest
	if c.Op = p.operator(); c.Op != "" {
		p.peek()
		after = p.rest
		c.Value = p.word()
	}
	err := c.prepare()
	if p.found++; err == nil && p.found > maxComparisons {
		err = fmt.Errorf("more than %d comparisons", maxComparisons)
	}
	if err != nil {
		p.rest = after // the position of the error: the value, or the end of the name
		return Term{}, err
	}
	return p.since(from, c), nil
}

// operator reads an operator; "" if none comes next.
func (p *constraintParser) operator() string {
	p.peek()
	for _, op := range []string{"==", "!=", "<=", ">=", "=", "<", ">"} {
		if rest, found := strings.CutPrefix(p.rest, op); found {
			p.rest = rest
			return strings.Replace(op, "==", "=", 1)
		}
	}
	return ""
}

func (p *constraintParser) word() string {
	end := strings.IndexFunc(p.rest, func(r rune) bool { return !isLabelRune(r) })
	if end < 0 {
		end = len(p.rest)
	}
	w := p.rest[:end]
	p.rest = p.rest[end:]
	return w
}

func isLabelRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:", r)
}

// CheckLabel returns an error if k=v cannot be a node's label.
func CheckLabel(k, v string) error {
	bad := func(s string) bool {
		return s == "" || len(s) > MaxName || strings.ContainsFunc(s, func(r rune) bool { return !isLabelRune(r) })
	}
	if bad(k) || bad(v) {
		return fmt.Errorf("label %.60q: want key=value of letters, digits and ._-/: only", k+"="+v)
	}
	return nil
}
