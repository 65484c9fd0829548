package job

// Constraints: expressions over a node's labels, such as rack=r1&nvlink.

import (
	"errors"
	"fmt"
	"strings"
)

// Constraint is a parsed expression. The zero value matches every node.
//
//	expr = all { "|" all }
//	all  = one { "&" one }
//	one  = "!" one | "(" expr ")" | KEY | KEY "=" VALUE | KEY "!=" VALUE
type Constraint struct {
	holds func(labels map[string]string) bool
	terms []string
}

// Bounds of an expression.
const (
	maxConstraint      = 1024 // bytes
	maxConstraintDepth = 32   // nested parentheses and negations
)

var errConstraintEnd = errors.New("ends where a label was expected")

// ParseConstraint parses an expression. An empty expression matches every node.
func ParseConstraint(text string) (Constraint, error) {
	if strings.TrimSpace(text) == "" {
		return Constraint{}, nil
	}
	if len(text) > maxConstraint {
		return Constraint{}, fmt.Errorf("constraint: %d bytes; at most %d", len(text), maxConstraint)
	}
	p := constraintParser{rest: text}
	holds, err := p.any(0)
	if err == nil && p.peek() != 0 {
		err = fmt.Errorf("unexpected %.20q", p.rest)
	}
	if err != nil {
		return Constraint{}, fmt.Errorf("constraint %.60q: %w; write it like 'rack=r1&nvlink'", text, err)
	}
	return Constraint{holds: holds, terms: p.terms}, nil
}

// Match reports whether a node with these labels meets the constraint.
func (c Constraint) Match(labels map[string]string) bool {
	return c.holds == nil || c.holds(labels)
}

// Terms lists the conditions on single labels in the order they were written.
func (c Constraint) Terms() []string { return c.terms }

type predicate = func(map[string]string) bool

type constraintParser struct {
	rest  string
	terms []string
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

func (p *constraintParser) any(depth int) (predicate, error) {
	left, err := p.all(depth)
	for err == nil && p.take('|') {
		var right predicate
		a := left
		right, err = p.all(depth)
		left = func(l map[string]string) bool { return a(l) || right(l) }
	}
	return left, err
}

func (p *constraintParser) all(depth int) (predicate, error) {
	left, err := p.one(depth)
	for err == nil && p.take('&') {
		var right predicate
		a := left
		right, err = p.one(depth)
		left = func(l map[string]string) bool { return a(l) && right(l) }
	}
	return left, err
}

func (p *constraintParser) one(depth int) (predicate, error) {
	if depth > maxConstraintDepth {
		return nil, fmt.Errorf("parentheses nested more than %d deep", maxConstraintDepth)
	}
	switch p.peek() {
	case '!':
		p.rest = p.rest[1:]
		inner, err := p.one(depth + 1)
		return func(l map[string]string) bool { return !inner(l) }, err
	case '(':
		p.rest = p.rest[1:]
		inner, err := p.any(depth + 1)
		if err == nil && p.peek() != ')' {
			return nil, errors.New("missing )")
		}
		if err == nil {
			p.rest = p.rest[1:]
		}
		return inner, err
	case 0:
		return nil, errConstraintEnd
	}
	return p.label()
}

func (p *constraintParser) label() (predicate, error) {
	key := p.word()
	if key == "" {
		return nil, fmt.Errorf("unexpected %.20q", p.rest)
	}
	not := false
	switch p.peek() {
	case '!':
		if !strings.HasPrefix(p.rest, "!=") {
			return nil, fmt.Errorf("unexpected %.20q", p.rest)
		}
		p.rest, not = p.rest[1:], true
	case '=':
	default:
		p.terms = append(p.terms, key)
		return func(l map[string]string) bool { _, ok := l[key]; return ok }, nil
	}
	p.rest = strings.TrimPrefix(p.rest[1:], "=") // == means =
	p.peek()
	value := p.word()
	if value == "" {
		return nil, fmt.Errorf("label %q has no value", key)
	}
	if not {
		p.terms = append(p.terms, key+"!="+value)
		return func(l map[string]string) bool { return l[key] != value }, nil
	}
	p.terms = append(p.terms, key+"="+value)
	return func(l map[string]string) bool { v, ok := l[key]; return ok && v == value }, nil
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
