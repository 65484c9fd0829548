package job

// Facts: what a node tells about itself, and how a constraint compares a fact or a label with a value.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Truth says whether a condition holds. If a node does not report what a condition asks about, the condition and its
// opposite are both Unknown. A constraint is met only if it is Yes.
type Truth int8

// The truths, in an order in which "and" is the least of two, "or" the greatest, and "not" the negative.
const (
	No Truth = iota - 1
	Unknown
	Yes
)

func truth(b bool) Truth {
	if b {
		return Yes
	}
	return No
}

// Facts are what a constraint compares: the labels of one node, and what the node has.
type Facts struct {
	Labels   map[string]string
	Signed   map[string]string // those of Labels that an inviter of the cluster has signed
	Name     string
	Arch, OS string // empty: unknown
	CPUs     int
	Memory   Size
	GPUs     int // with each MIG instance counted
	// Kinds are the kinds of its GPUs. If there are more than MaxKinds, it is empty.
	Kinds  []GPUKind
	NVLink Truth // NVLink joins all its GPUs
	// Fencing is Yes if its tasks end with their leases for certain; see type Fencing.
	Fencing Truth
}

// Trusted returns the facts with only the signed labels. The other facts are what the node says of itself.
func (f Facts) Trusted() Facts {
	f.Labels = f.Signed
	return f
}

// MaxKinds bounds the kinds of GPUs of one node that a constraint compares.
const MaxKinds = 16

// GPUKind is what a constraint compares of a GPU.
type GPUKind struct {
	Class           string // such as h100-80gb
	Memory          Size
	Compute, Driver Version // zero: unknown
}

// Version is a version, or any other number, as its parts. Missing parts are 0, so 9 is 9.0.
type Version [4]int64

// Compare compares two versions part by part, as numbers.
func (v Version) Compare(w Version) int { return slices.Compare(v[:], w[:]) }

// String returns the version without zeros at its end, but with two parts at least.
func (v Version) String() string {
	n := len(v)
	for n > 2 && v[n-1] == 0 {
		n--
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strconv.FormatInt(v[i], 10)
	}
	return strings.Join(parts, ".")
}

// ParseVersion parses up to four numbers with dots between them, such as 9.0 or 550.54.15.
func ParseVersion(text string) (v Version, err error) {
	bad := fmt.Errorf("%.40q is not a version such as 9.0", text)
	i := 0
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || i >= len(v) {
			return Version{}, bad
		}
		v[i] = int64(n)
		i++
	}
	return v, nil
}

// fact is something that a node tells about itself. It is a text, an amount or a flag.
type fact struct {
	// text returns the value of a text; amount that of a number, a size or a version. gpu is the kind of GPU that is
	// asked about, if perGPU. An empty text is unknown, and so is an amount with ok false.
	text   func(f *Facts, gpu *GPUKind) string
	amount func(f *Facts, gpu *GPUKind) (v Version, ok bool)
	flag   func(f *Facts) Truth
	perGPU bool // each GPU has a value
	read   func(text string) (Version, error)
	show   func(Version) string
	equal  func(has, want string) bool // of texts; nil: they are the same
}

// factTable lists the facts by their names. A fact wins over a label of the same name.
var factTable = map[string]*fact{
	"name":    {text: func(f *Facts, _ *GPUKind) string { return f.Name }},
	"arch":    {text: func(f *Facts, _ *GPUKind) string { return f.Arch }},
	"os":      {text: func(f *Facts, _ *GPUKind) string { return f.OS }},
	"cpus":    {amount: func(f *Facts, _ *GPUKind) (Version, bool) { return Version{int64(f.CPUs)}, true }, read: readCount, show: showCount},
	"memory":  {amount: func(f *Facts, _ *GPUKind) (Version, bool) { return Version{int64(f.Memory)}, f.Memory > 0 }, read: readSize, show: showSize},
	"nvlink":  {flag: func(f *Facts) Truth { return f.NVLink }},
	"fencing": {flag: func(f *Facts) Truth { return f.Fencing }},

	"gpu.count": {amount: func(f *Facts, _ *GPUKind) (Version, bool) { return Version{int64(f.GPUs)}, true }, read: readCount, show: showCount},
	"gpu.model": {perGPU: true, text: func(_ *Facts, g *GPUKind) string { return g.Class }, equal: IsModel},
	"gpu.memory": {
		perGPU: true, read: readSize, show: showSize,
		amount: func(_ *Facts, g *GPUKind) (Version, bool) { return Version{int64(g.Memory)}, g.Memory > 0 },
	},
	"gpu.cc": {
		perGPU: true, read: ParseVersion, show: Version.String,
		amount: func(_ *Facts, g *GPUKind) (Version, bool) { return g.Compute, g.Compute != Version{} },
	},
	"driver": {
		perGPU: true, read: ParseVersion, show: Version.String,
		amount: func(_ *Facts, g *GPUKind) (Version, bool) { return g.Driver, g.Driver != Version{} },
	},
}

// archAliases are other names of architectures.
var archAliases = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// CheckOwnLabel is like CheckLabel, for a label of this host. Its name must not be that of a fact, because the fact
// would hide the label.
func CheckOwnLabel(k, v string) error {
	if _, isFact := factTable[k]; isFact || strings.HasPrefix(k, gpuPrefix) {
		return fmt.Errorf("label %.60q: each node tells its %s by itself; choose another name", k+"="+v, k)
	}
	return CheckLabel(k, v)
}

// gpuPrefix begins the names of facts about GPUs. No label may have it, so that a misspelt fact is an error.
const gpuPrefix = "gpu."

func readCount(text string) (Version, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return Version{}, fmt.Errorf("%.40q is not a number", text)
	}
	return Version{int64(n)}, nil
}

func readSize(text string) (Version, error) {
	n, err := ParseSize(text)
	return Version{int64(n)}, err
}

func showCount(v Version) string { return strconv.FormatInt(v[0], 10) }
func showSize(v Version) string  { return Size(v[0]).String() }

// IsModel reports whether a class of GPUs has a model: h100-80gb has h100 and h100-80gb. A MIG instance never stands
// for the whole GPU: h100-80gb-mig-1g.10gb has 1g.10gb and its whole name.
func IsModel(class, model string) bool {
	model = strings.TrimPrefix(strings.ToLower(model), "nvidia-")
	if _, instance, isMIG := strings.Cut(class, "-mig-"); isMIG {
		return model == class || model == instance
	}
	rest, begins := strings.CutPrefix(class, model)
	return begins && (rest == "" || rest[0] == '-')
}

// Comparison compares a fact or a label with a value.
type Comparison struct {
	Name, Op, Value string
	Label           bool    // Name is that of a label
	Amount          Version // what Value says, if the fact or the label is compared as a number
}

// comparison is a Comparison whose value is parsed, so that it can be evaluated.
type comparison struct {
	Comparison
	fact *fact
	read func(text string) (Version, error) // of the value, and of labels; nil for texts
}

// prepare reads the value. It returns an error if the comparison makes no sense.
func (c *comparison) prepare() error {
	c.fact = factTable[c.Name]
	c.Label = c.fact == nil
	switch {
	case len(c.Name) > MaxName || len(c.Value) > MaxName:
		return fmt.Errorf("a name or value of more than %d characters", MaxName)
	case c.Label && strings.HasPrefix(c.Name, gpuPrefix):
		return fmt.Errorf("%.40q is not a fact; these are %s", c.Name, strings.Join(slices.Sorted(maps.Keys(factTable)), " "))
	case c.Op == "" && !c.Label && c.fact.flag == nil:
		return fmt.Errorf("%s needs a comparison, such as %s=VALUE", c.Name, c.Name)
	case c.Op == "":
		return nil
	case !c.Label && c.fact.flag != nil:
		return fmt.Errorf("%s has no value; write %s or !%s", c.Name, c.Name, c.Name)
	case c.Value == "":
		return fmt.Errorf("a value for %.40q is missing", c.Name)
	}
	ordered := c.Op != "=" && c.Op != "!="
	switch {
	case c.Label && ordered:
		return c.readLabel()
	case c.Label:
		return nil
	case c.fact.text != nil && ordered:
		return fmt.Errorf("%s can only be compared with = and !=", c.Name)
	case c.fact.text != nil:
		if alias, there := archAliases[c.Value]; there && c.Name == "arch" {
			c.Value = alias
		}
		return nil
	}
	c.read = c.fact.read
	var err error
	if c.Amount, err = c.read(c.Value); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// readLabel reads the value of an ordered comparison with a label: a version, or else a size.
func (c *comparison) readLabel() (err error) {
	for _, c.read = range []func(string) (Version, error){ParseVersion, readSize} {
		if c.Amount, err = c.read(c.Value); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%.40q is not a number, a version or a size, and %s orders only these", c.Value, c.Op)
}

func (c *comparison) comparisons(to []*comparison) []*comparison { return append(to, c) }

func (c *comparison) holds(f *Facts) Truth {
	switch {
	case c.Label:
		return c.labelHolds(f)
	case c.fact.flag != nil:
		return c.fact.flag(f)
	case !c.fact.perGPU:
		return c.holdsFor(f, nil)
	case len(f.Kinds) == 0:
		return Unknown
	}
	// It holds if it does for each GPU, since a task may get any of them. Its opposite holds if it does for none.
	all := c.holdsFor(f, &f.Kinds[0])
	for i := 1; i < len(f.Kinds); i++ {
		if c.holdsFor(f, &f.Kinds[i]) != all {
			return Unknown
		}
	}
	return all
}

func (c *comparison) holdsFor(f *Facts, g *GPUKind) Truth {
	if c.fact.text != nil {
		has := c.fact.text(f, g)
		switch {
		case has == "":
			return Unknown
		case c.fact.equal != nil:
			return truth(c.fact.equal(has, c.Value) == (c.Op == "="))
		}
		return truth((has == c.Value) == (c.Op == "="))
	}
	has, known := c.fact.amount(f, g)
	if !known {
		return Unknown
	}
	return c.compare(has)
}

func (c *comparison) compare(has Version) Truth {
	n := has.Compare(c.Amount)
	switch c.Op {
	case "=":
		return truth(n == 0)
	case "!=":
		return truth(n != 0)
	case "<":
		return truth(n < 0)
	case "<=":
		return truth(n <= 0)
	case ">":
		return truth(n > 0)
	}
	return truth(n >= 0)
}

// labelHolds compares a label. A node without the label differs from every value, but is neither above nor below it.
func (c *comparison) labelHolds(f *Facts) Truth {
	has, labelled := f.Labels[c.Name]
	switch {
	case c.Op == "":
		return truth(labelled)
	case c.read == nil:
		return truth((labelled && has == c.Value) == (c.Op == "="))
	}
	v, err := c.read(has)
	if err != nil {
		return Unknown
	}
	return c.compare(v)
}

// has says what the node has: "has rack=r2" or "has 8.6". If there are several comparisons, named adds the name of the
// fact.
func (c *comparison) has(f *Facts, named bool) string {
	if c.Label {
		if v, labelled := f.Labels[c.Name]; labelled {
			return "has " + c.Name + "=" + v
		}
		return "is not labelled " + c.Name
	}
	if c.fact.flag != nil {
		switch c.fact.flag(f) {
		case Yes:
			return "has " + c.Name
		case No:
			return "has no " + c.Name
		case Unknown:
			return "does not tell " + c.Name
		}
	}
	values, why := c.values(f)
	if why != "" {
		return why
	}
	name := ""
	if named {
		name = c.Name + "="
	}
	return "has " + name + strings.Join(values, " and ")
}

// values returns the different values of the fact, in their order, or why it has none. The fact is no flag.
func (c *comparison) values(f *Facts) (values []string, why string) {
	kinds := make([]*GPUKind, 1, MaxKinds)
	if c.fact.perGPU {
		kinds = kinds[:0]
		for i := range f.Kinds {
			kinds = append(kinds, &f.Kinds[i])
		}
		switch {
		case f.GPUs == 0:
			return nil, "has no GPU"
		case len(kinds) == 0:
			return nil, fmt.Sprintf("has GPUs of more than %d kinds", MaxKinds)
		}
	}
	type value struct {
		v    Version
		text string
	}
	var all []value
	for _, g := range kinds {
		var one value
		if c.fact.text != nil {
			one.text = c.fact.text(f, g)
		} else if v, known := c.fact.amount(f, g); known {
			one = value{v, c.fact.show(v)}
		}
		if one.text == "" {
			return nil, "does not tell " + c.Name
		}
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b value) int { return cmp.Or(a.v.Compare(b.v), cmp.Compare(a.text, b.text)) })
	for _, one := range all {
		values = append(values, one.text)
	}
	return values, ""
}
