package load

// Distributions by name, such as lognormal(median=10m,sigma=1.5).

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"

	"github.com/musterhq/muster/job"
)

// Distribution is a distribution from which a number is drawn. The unit depends on the setting: seconds, bytes, or
// none.
type Distribution struct {
	kind   string
	params []float64 // values of the kind's parameters, in their order
	most   float64   // larger draws are reduced to this
}

// parameter is a parameter of a distribution.
type parameter struct {
	name  string
	plain bool // a number without a unit, above 0
}

// kinds lists the distributions.
var kinds = map[string]struct {
	params []parameter
	draw   func(r *rand.Rand, p []float64) float64
}{
	"constant": {[]parameter{{name: "value"}}, func(_ *rand.Rand, p []float64) float64 { return p[0] }},
	"uniform": {[]parameter{{name: "min"}, {name: "max"}}, func(r *rand.Rand, p []float64) float64 {
		return p[0] + (p[1]-p[0])*r.Float64()
	}},
	"exponential": {[]parameter{{name: "mean"}}, func(r *rand.Rand, p []float64) float64 { return p[0] * r.ExpFloat64() }},
	"lognormal": {[]parameter{{name: "median"}, {"sigma", true}}, func(r *rand.Rand, p []float64) float64 {
		return p[0] * math.Exp(p[1]*r.NormFloat64())
	}},
	"pareto": {[]parameter{{name: "min"}, {"alpha", true}}, func(r *rand.Rand, p []float64) float64 {
		return p[0] / math.Pow(1-r.Float64(), 1/p[1])
	}},
	"weibull": {[]parameter{{name: "scale"}, {"shape", true}}, func(r *rand.Rand, p []float64) float64 {
		return p[0] * math.Pow(r.ExpFloat64(), 1/p[1])
	}},
}

const distributionUse = "want constant(value=X), uniform(min=X,max=Y), exponential(mean=X), lognormal(median=X,sigma=N), pareto(min=X,alpha=N) or weibull(scale=X,shape=N)"

var errDistribution = errors.New(distributionUse)

// unit parses a number of a distribution.
type unit func(text string) (float64, error)

// The units of numbers.
var (
	inSeconds unit = func(text string) (float64, error) {
		d, err := job.ParseDuration(text)
		return d.D().Seconds(), err
	}
	inBytes unit = func(text string) (float64, error) {
		s, err := job.ParseSize(text)
		return float64(s), err
	}
	inNumbers unit = func(text string) (float64, error) {
		x, err := parseNumber(text)
		if err == nil && x < 0 {
			err = fmt.Errorf("%q is below 0", text)
		}
		return x, err
	}
)

// parseDistribution parses a distribution whose numbers have this unit. Its draws are at most most. X alone means
// constant(value=X). All kinds except uniform and constant also take max=X: larger draws are reduced to X.
func parseDistribution(text string, of unit, most float64) (Distribution, error) {
	d, err := readDistribution(text, of, most)
	if err != nil {
		return d, fmt.Errorf("%.80q: %w", text, err)
	}
	return d, nil
}

func readDistribution(text string, of unit, most float64) (Distribution, error) {
	name, rest, called := strings.Cut(strings.TrimSpace(text), "(")
	if !called {
		name, rest = "constant", "value="+name+")"
	}
	kind, known := kinds[strings.TrimSpace(name)]
	list, closed := strings.CutSuffix(strings.TrimSpace(rest), ")")
	if !known || !closed {
		return Distribution{}, errDistribution
	}
	d := Distribution{kind: strings.TrimSpace(name), params: make([]float64, len(kind.params)), most: most}
	given := map[string]bool{}
	for pair := range strings.SplitSeq(list, ",") {
		k, v, _ := strings.Cut(pair, "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		i := slices.IndexFunc(kind.params, func(p parameter) bool { return p.name == k })
		parse := of
		if i >= 0 && kind.params[i].plain {
			parse = parseShape
		}
		x, err := parse(v)
		switch {
		case given[k]:
			return Distribution{}, fmt.Errorf("%s is there twice", k)
		case i < 0 && k != "max":
			return Distribution{}, fmt.Errorf("%.20q is not one of its parameters; %s", k, distributionUse)
		case err != nil:
			return Distribution{}, fmt.Errorf("%s: %w", k, err)
		case x > most:
			return Distribution{}, fmt.Errorf("%s: too large", k)
		case i < 0:
			d.most = x
		default:
			d.params[i] = x
		}
		given[k] = true
	}
	for _, p := range kind.params {
		if !given[p.name] {
			return Distribution{}, fmt.Errorf("%s is missing; %s", p.name, distributionUse)
		}
	}
	if d.kind == "uniform" && d.params[1] < d.params[0] {
		return Distribution{}, errors.New("max is below min")
	}
	return d, nil
}

// The bounds of shapes ensure that every draw is a number.
const (
	leastShape = 0.01
	mostShape  = 100
)

func parseShape(text string) (float64, error) {
	x, err := parseNumber(text)
	if err != nil || x < leastShape || x > mostShape {
		return 0, fmt.Errorf("%q: want %v to %v", text, leastShape, mostShape)
	}
	return x, nil
}

// draw returns a number of at least 0.
func (d Distribution) draw(r *rand.Rand) float64 {
	x := kinds[d.kind].draw(r, d.params)
	if !(x <= d.most) { // an infinity, too
		return d.most
	}
	return x
}

// choice is a text with its weight.
type choice struct {
	text   string
	upTo   float64 // the sum of its weight and of those before it; all weights together are 1
	weight float64
}

// mix is a choice of texts by weight.
type mix []choice

const maxMix = 10_000 // choices

// parseMix parses choices with their weights, such as "1:0.6,2:0.2,8:0.2". A choice without a weight has the weight 1.
func parseMix(text string) (mix, error) {
	var m mix
	sum := 0.0
	for part := range strings.SplitSeq(text, ",") {
		name, weight := strings.TrimSpace(part), 1.0
		if i := strings.LastIndexByte(name, ':'); i >= 0 {
			x, err := parseNumber(strings.TrimSpace(name[i+1:]))
			if err != nil || !(x > 0 && x <= 1e9) {
				return nil, fmt.Errorf("%.40q: want a weight above 0 after the colon, as in 1:0.6,2:0.4", part)
			}
			name, weight = strings.TrimSpace(name[:i]), x
		}
		if name == "" {
			return nil, fmt.Errorf("%.40q: a choice is empty; write it like 1:0.6,2:0.4", text)
		}
		if len(name) > maxText || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("%.40q: at most %d printable characters", name, maxText)
		}
		if slices.ContainsFunc(m, func(c choice) bool { return c.text == name }) {
			return nil, fmt.Errorf("%.40q: %s is there twice", text, name)
		}
		if len(m) >= maxMix {
			return nil, fmt.Errorf("more than %d choices", maxMix)
		}
		sum += weight
		m = append(m, choice{text: name, upTo: sum, weight: weight})
	}
	for i := range m {
		m[i].upTo /= sum
	}
	return m, nil
}

// draw returns the index of a choice.
func (m mix) draw(r *rand.Rand) int {
	x := r.Float64()
	i, _ := slices.BinarySearchFunc(m, x, func(c choice, x float64) int {
		if c.upTo <= x {
			return -1
		}
		return 1
	})
	return min(i, len(m)-1)
}

// parsePart parses a fraction from 0 to 1, or a percentage such as 30%.
func parsePart(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	x, err := parseNumber(number)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, fmt.Errorf("%.40q: want a part from 0 to 1, or a percentage", text)
	}
	return x, nil
}
