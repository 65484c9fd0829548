package job

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func version(text string) Version {
	v, err := ParseVersion(text)
	if err != nil {
		panic(err)
	}
	return v
}

// The nodes of the tests.
var (
	h100 = GPUKind{Class: "h100-80gb", Memory: 80e9, Compute: version("9.0"), Driver: version("550.54.15")}
	a40  = GPUKind{Class: "a40-48gb", Memory: 48e9, Compute: version("8.6"), Driver: version("550.54.15")}

	cpuNode = &Facts{Name: "c1", Arch: "amd64", OS: "linux", CPUs: 64, Memory: 256 << 30, NVLink: No, Fencing: No, Labels: map[string]string{
		"rack": "r1", "old": "yes", "zone": "eu", "gen": "3", "scratch": "2TB",
	}}
	gpuNode   = &Facts{Name: "g1", Arch: "arm64", OS: "linux", CPUs: 8, Memory: 64 << 30, GPUs: 8, Kinds: []GPUKind{h100}, NVLink: Yes, Fencing: Yes}
	mixedNode = &Facts{Name: "m1", CPUs: 8, GPUs: 2, Kinds: []GPUKind{h100, a40}, NVLink: No}
	mutedNode = &Facts{Name: "x1", GPUs: 1, Kinds: []GPUKind{{}}} // reports little
	wildNode  = &Facts{Name: "w1", GPUs: 20}                      // GPUs of too many kinds
)

// Which nodes meet a condition, and which its opposite.
func TestWhichNodesMeetAConstraint(t *testing.T) {
	const neither = "neither"
	for _, c := range []struct {
		node *Facts
		text string
		want string // yes, no, or neither: neither the condition nor "!(condition)" is met
	}{
		{cpuNode, "rack=r1", "yes"},
		{cpuNode, "rack==r1", "yes"},
		{cpuNode, "rack = r1", "yes"},
		{cpuNode, "rack=r2", "no"},
		{cpuNode, "rack!=r1", "no"},
		{cpuNode, "rack", "yes"},
		{cpuNode, "gone", "no"},
		{cpuNode, "gone=x", "no"},
		{cpuNode, "gone!=x", "yes"},
		{cpuNode, "rack=r1&!old", "no"},
		{cpuNode, "rack=r1&zone=eu", "yes"},
		{cpuNode, "rack=r2|zone=eu", "yes"},
		{cpuNode, "rack=r1 && zone=eu || gone", "yes"},
		{cpuNode, "(rack=r2|rack=r1)&!gone", "yes"},
		{cpuNode, "!(old&gone)", "yes"},
		{cpuNode, "rack=r2&rack=r1|zone=eu", "yes"}, // & binds closer than |

		{cpuNode, "gen>=3", "yes"},
		{cpuNode, "gen<3", "no"},
		{cpuNode, "gen>10", "no"}, // as numbers, not as texts
		{cpuNode, "scratch>=1TB", "yes"},
		{cpuNode, "scratch<500GB", "no"},
		{cpuNode, "rack<3", neither}, // r1 is neither below nor above 3
		{cpuNode, "gone<3", neither},
		{cpuNode, "scratch<3", neither},

		{cpuNode, "name=c1", "yes"},
		{cpuNode, "os=linux", "yes"},
		{cpuNode, "arch=amd64", "yes"},
		{cpuNode, "arch=x86_64", "yes"},
		{cpuNode, "arch!=x86_64", "no"},
		{gpuNode, "arch=aarch64", "yes"},
		{gpuNode, "arch=arm64", "yes"},
		{mixedNode, "arch=amd64", neither}, // an older daemon, which does not report it
		{mixedNode, "arch!=amd64", neither},
		{cpuNode, "cpus>=64", "yes"},
		{cpuNode, "cpus>64", "no"},
		{cpuNode, "memory>=256GiB", "yes"},
		{cpuNode, "memory>=257GiB", "no"},
		{mutedNode, "memory>=1B", neither},

		{gpuNode, "gpu.cc>=9.0", "yes"},
		{gpuNode, "gpu.cc>=9", "yes"},
		{gpuNode, "gpu.cc=9", "yes"},
		{gpuNode, "gpu.cc>=10.0", "no"}, // 10 is more than 9
		{gpuNode, "gpu.cc<=8.9", "no"},
		{gpuNode, "gpu.memory>=40GB", "yes"},
		{gpuNode, "gpu.memory>100GB", "no"},
		{gpuNode, "gpu.count>=4", "yes"},
		{gpuNode, "gpu.count<8", "no"},
		{gpuNode, "driver>=550", "yes"},
		{gpuNode, "driver>550", "yes"},
		{gpuNode, "driver>=550.54.16", "no"},
		{gpuNode, "driver<560", "yes"},
		{gpuNode, "driver<1000", "yes"},
		{gpuNode, "gpu.model=h100", "yes"},
		{gpuNode, "gpu.model=NVIDIA-H100", "yes"},
		{gpuNode, "gpu.model=h100-80gb", "yes"},
		{gpuNode, "gpu.model=h10", "no"},
		{gpuNode, "nvlink", "yes"},
		{cpuNode, "nvlink", "no"},
		{mutedNode, "nvlink", neither},
		{gpuNode, "fencing", "yes"},
		{cpuNode, "fencing", "no"},
		{mutedNode, "fencing", neither},

		// Without a GPU no condition about GPUs is met, except on their number.
		{cpuNode, "gpu.count>=1", "no"},
		{cpuNode, "gpu.cc>=9.0", neither},
		{cpuNode, "gpu.cc<9.0", neither},
		{cpuNode, "gpu.cc!=9.0", neither},
		{cpuNode, "driver>=550", neither},
		{cpuNode, "gpu.model!=h100", neither},
		{cpuNode, "gpu.count=0|gpu.model!=h100", "yes"},
		// A task may get any GPU of the node, so all of them must meet the condition.
		{mixedNode, "gpu.cc>=8.0", "yes"},
		{mixedNode, "gpu.cc>=9.0", neither},
		{mixedNode, "gpu.cc<9.0", neither},
		{mixedNode, "gpu.cc>=9.1", "no"},
		{mixedNode, "gpu.model=h100", neither},
		{mixedNode, "gpu.memory>=40GB&driver>=550", "yes"},
		{mutedNode, "gpu.cc>=9.0", neither},
		{mutedNode, "driver!=550", neither},
		{wildNode, "gpu.memory>1GB", neither},
		{wildNode, "gpu.count>16", "yes"},
		// An unknown value decides nothing if the rest does.
		{cpuNode, "gpu.cc>=9.0|rack=r1", "yes"},
		{cpuNode, "gpu.cc>=9.0&rack=r2", "no"},
	} {
		met := func(text string) bool {
			x, err := ParseConstraint(text)
			if err != nil {
				t.Fatal(err)
			}
			return x.Met(c.node)
		}
		got := map[[2]bool]string{{true, false}: "yes", {false, true}: "no", {false, false}: neither}[[2]bool{met(c.text), met("!(" + c.text + ")")}]
		if got != c.want {
			t.Errorf("%s: %s: %s, want %s", c.node.Name, c.text, got, c.want)
		}
	}
}

// A label never hides a fact of the same name.
func TestLabelNeverHidesAFact(t *testing.T) {
	f := &Facts{CPUs: 4, Arch: "arm64", Labels: map[string]string{"cpus": "64", "arch": "amd64", "nvlink": "yes"}, NVLink: No}
	for text, want := range map[string]bool{"cpus>=8": false, "arch=arm64": true, "nvlink": false} {
		if c, err := ParseConstraint(text); err != nil || c.Met(f) != want {
			t.Errorf("%s: %v, %v, want no error and %v", text, c.Met(f), err, want)
		}
	}
	for _, name := range []string{"cpus", "arch", "gpu.cc", "gpu.anything", "name"} {
		if err := CheckOwnLabel(name, "x"); err == nil || !strings.Contains(err.Error(), "by itself") {
			t.Errorf(`a node may be labelled %s: %v, want an error and "by itself" in it`, name, err)
		}
	}
	if err := CheckOwnLabel("rack", "r1"); err != nil {
		t.Error(err)
	}
}

func TestErrorsOfConstraints(t *testing.T) {
	for text, want := range map[string]string{
		"&":                                `at character 1: unexpected "&"`,
		"rack=":                            `at character 6: a value for "rack" is missing`,
		"=r1":                              `at character 1: unexpected "=r1"`,
		"rack=r1&":                         "at character 9: it ends where a name was expected",
		"rack=r1&&&x":                      `at character 10: unexpected "&x"`,
		"(rack":                            "at character 6: a ) is missing",
		"rack)":                            `at character 5: unexpected ")"`,
		"a b":                              `at character 3: unexpected "b"`,
		"a!b":                              `at character 2: unexpected "!b"`,
		"a,b":                              "at character 2: unexpected ','; write & for and, | for or",
		"[a|b]":                            `at character 1: unexpected "[a|b]"`,
		"a*2":                              `at character 2: unexpected "*2"`,
		"gpu.memory>=40":                   `at character 13: gpu.memory: size "40": a number needs a unit`,
		"gpu.cc>=new":                      `at character 9: gpu.cc: "new" is not a version such as 9.0`,
		"gpu.cc":                           "at character 7: gpu.cc needs a comparison, such as gpu.cc=VALUE",
		"x&gpu.mem>=40GB":                  `at character 12: "gpu.mem" is not a fact; these are arch cpus driver fencing gpu.cc`,
		"arch<arm64":                       "arch can only be compared with = and !=",
		"nvlink=yes":                       "nvlink has no value; write nvlink or !nvlink",
		"cpus>=64GB":                       `cpus: "64GB" is not a number`,
		"rack<r3":                          `"r3" is not a number, a version or a size, and < orders only these`,
		"driver>=1.2.3.4.5":                "is not a version",
		"driver>=99999999999":              "is not a version",
		strings.Repeat("!", 100) + "a":     "nested more than 32 deep",
		strings.Repeat("(", 100) + "a":     "nested more than 32 deep",
		strings.Repeat("a", 2000):          "2000 bytes; at most 1024",
		strings.Repeat("a", 200):           "a name or value of more than 128 characters",
		"a=" + strings.Repeat("b", 200):    "a name or value of more than 128 characters",
		strings.Repeat("a&", 32) + "a":     "more than 32 comparisons",
		strings.Repeat("a|", 32) + "(a&b)": "more than 32 comparisons",
	} {
		_, err := ParseConstraint(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

// The terms of an and-list are separate, each with what a node has of it.
func TestTermsOfAConstraint(t *testing.T) {
	for _, c := range []struct {
		node *Facts
		text string
		want string
	}{
		{cpuNode, "", ""},
		{cpuNode, "rack=r2", "rack=r2: has rack=r1"},
		{cpuNode, " shelf = 1 ", "shelf = 1: is not labelled shelf"},
		{cpuNode, "rack=r2&(old & cpus>=128)", "rack=r2: has rack=r1; old: has old=yes; cpus>=128: has 64"},
		{cpuNode, "!old", "!old: has old=yes"},
		{cpuNode, "(rack=r2|rack=r3)&!(old|zone=eu)", "(rack=r2|rack=r3): has rack=r1; !(old|zone=eu): has old=yes, has zone=eu"},
		{cpuNode, "memory>=1TiB|gpu.count>2", "memory>=1TiB|gpu.count>2: has memory=256GiB, has gpu.count=0"},
		{cpuNode, "gpu.cc>=9.0&nvlink&arch=arm64", "gpu.cc>=9.0: has no GPU; nvlink: has no nvlink; arch=arm64: has amd64"},
		{mixedNode, "gpu.cc>=9.0&arch=amd64&gpu.memory>1GB", "gpu.cc>=9.0: has 8.6 and 9.0; arch=amd64: does not tell arch; gpu.memory>1GB: has 48GB and 80GB"},
		{gpuNode, "driver>=560&gpu.model=a100&!nvlink", "driver>=560: has 550.54.15; gpu.model=a100: has h100-80gb; !nvlink: has nvlink"},
		{mutedNode, "driver>=560&nvlink", "driver>=560: does not tell driver; nvlink: does not tell nvlink"},
		{wildNode, "driver>=560", "driver>=560: has GPUs of more than 16 kinds"},
	} {
		x, err := ParseConstraint(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, term := range x.Terms() {
			got = append(got, term.Text+": "+term.Has(c.node))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%q on %s:\n got %s\nwant %s", c.text, c.node.Name, strings.Join(got, "; "), c.want)
		}
	}
}

// Which comparisons a term demands, for the search of hosts.
func TestComparisonsThatATermDemands(t *testing.T) {
	for text, want := range map[string]string{
		"rack=r1":                    "[[{rack = r1 true 0.0}]]",
		"rack=r1&cpus>=4":            "[[{rack = r1 true 0.0}] [{cpus >= 4 false 4.0}]]",
		"(rack=r1|rack=r2)&old":      "[[{rack = r1 true 0.0} {rack = r2 true 0.0}] [{old   true 0.0}]]",
		"!rack=r1&(a&b|c)&!(a=1)":    "[[] [] []]",
		"rack==r1|(name=n1|arch=x)":  "[[]]",
		"arch=aarch64&driver>=550.1": "[[{arch = arm64 false 0.0}] [{driver >= 550.1 false 550.1}]]",
	} {
		c, err := ParseConstraint(text)
		if err != nil {
			t.Fatal(err)
		}
		got := [][]Comparison{}
		for _, term := range c.Terms() {
			got = append(got, term.AnyOf())
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

// Any text is refused in one line, or gives an expression that can be compared with any node. Its terms together have
// the same meaning.
func FuzzConstraint(f *testing.F) {
	for _, text := range []string{"(rack=r2|rack=r1)&!gone", "gpu.cc>=9.0&driver<560", "!nvlink|cpus>=4&memory>1GiB", "a>=1.2.3.4&b<2TB", "[a|b]*2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConstraint(text)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("error %q, want one line", err)
			}
			return
		}
		for _, node := range []*Facts{cpuNode, gpuNode, mixedNode, mutedNode, wildNode, {}} {
			met := true
			for _, term := range c.Terms() {
				term.AnyOf()
				met = met && term.Met(node)
				if has := term.Has(node); !utf8.ValidString(has) || has == "" {
					t.Errorf("%s: %s has %q, want valid text", text, node.Name, has)
				}
				part, err := ParseConstraint(term.Text)
				if err != nil || part.Met(node) != term.Met(node) {
					t.Errorf("the term %q of %q alone: %v, %v, want no error and %v", term.Text, text, part.Met(node), err, term.Met(node))
				}
			}
			if c.Met(node) != met {
				t.Errorf("%q is met: %v, want %v as its terms", text, c.Met(node), met)
			}
			if opposite, err := ParseConstraint("!(" + text + ")"); err == nil && len(c.Terms()) > 0 && opposite.Met(node) && met {
				t.Errorf("both %q and its opposite are met", text)
			}
		}
	})
}

func TestPreferencesAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "[]",
		"rack=r1":                   "[rack=r1*1]",
		"rack=r1:5":                 "[rack=r1*5]",
		" rack=r1 : 5 , nvlink":     "[rack=r1*1 nvlink*1]", // a blank is no weight, and nothing is refused below
		"rack=r1|rack=r2:2,!old":    "[rack=r1|rack=r2*2 !old*1]",
		"port=a:b:3,(numa=0:1)":     "[port=a:b*3 (numa=0:1)*1]",
		"numa=0:1:7":                "[numa=0:1*7]",
		"gpu.cc>=9.0:10,cpus>=8:20": "[gpu.cc>=9.0*10 cpus>=8*20]",
	} {
		all, err := ParsePrefer(text)
		got := []string{}
		for _, p := range all {
			got = append(got, fmt.Sprintf("%s*%d", p.Text, p.Weight))
		}
		if text == " rack=r1 : 5 , nvlink" {
			if err == nil {
				t.Errorf("%q was accepted as %v", text, got)
			}
			continue
		}
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"rack=r1:0": "the weight 0 is not between 1 and 100", "rack=r1:101": "not between", "a,,b": "an expression is missing", ":5": "an expression is missing",
		"a,b&": "prefer: constraint \"b&\": at character 3", strings.Repeat("a,", 8) + "a": "9 expressions; at most 8",
	} {
		if _, err := ParsePrefer(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParsePrefer(f *testing.F) {
	f.Add("rack=r1:5,nvlink,(numa=0:1)")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParsePrefer(text)
		if err != nil {
			return
		}
		for _, p := range all {
			if p.Weight < 1 || p.Weight > maxWeight || p.Text == "" || len(all) > MaxPreferences {
				t.Errorf("%q: %+v, want a few preferences with weights", text, p)
			}
		}
	})
}
