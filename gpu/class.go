package gpu

// Device classes: the short names by which devices are found.

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/job"
)

// maxClass bounds the bytes of a class, because other hosts store it as part of a key.
const maxClass = 64

// noise lists words in driver names that do not matter to a task: the maker, the product line, the chip's family and
// the form factor.
var noise = []string{
	"nvidia", "tesla", "geforce", "quadro", "grid", "amd", "instinct", "intel", "graphics", "gpu", "generation",
	"blackwell", "server", "workstation", "edition", "max", "q", "ac", "pcie", "nvl", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6",
	"hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "mock", "simulated",
}

// forms are noise words that a user may still ask for: "H100 PCIe".
var forms = []string{"pcie", "nvl", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6"}

// nominal lists the sizes in GB under which GPUs are sold. A driver reports somewhat less, because the GPU itself and
// error correction need a part.
var nominal = []int{1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 120, 128, 141, 144, 180, 186, 192, 256, 288}

var (
	sizeWord  = regexp.MustCompile(`^(\d{1,4})gi?b?$`)
	aSeries   = regexp.MustCompile(`^a\d`)
	notInName = regexp.MustCompile(`[^a-z0-9.+]+`)
)

// Class returns the class of a device from its driver's name and its memory (0: unknown): "NVIDIA H100 80GB HBM3" is
// h100-80gb. For a MIG instance, memory is that of the whole GPU.
func Class(model string, memory job.Size) string {
	words := nameWords(model)
	mig := ""
	if i := slices.Index(words, "mig"); i >= 0 {
		mig = strings.Join(append([]string{"-mig"}, words[i+1:]...), "-")
		words = words[:i]
	}
	name, named := "", 0
	for i, w := range words {
		switch {
		case slices.Contains(noise, w):
		case w == "rtx" && i+1 < len(words) && aSeries.MatchString(words[i+1]): // an RTX A6000 is an A6000
		case name != "" && sizeWord.MatchString(w):
			named, _ = strconv.Atoi(sizeWord.FindStringSubmatch(w)[1])
		default:
			name += w
		}
	}
	if name == "" {
		return ""
	}
	if gb := classGB(named, memory); gb > 0 {
		name += "-" + strconv.Itoa(gb) + "gb"
	}
	name += mig
	return name[:min(len(name), maxClass)]
}

// nameWords splits a model name into lower-case words.
func nameWords(model string) []string {
	words := strings.Fields(notInName.ReplaceAllString(strings.ToLower(model), " "))
	for i := 1; i < len(words); i++ { // "80 GB" is "80GB"
		if words[i] == "gb" && sizeWord.MatchString(words[i-1]+"gb") {
			words[i-1] += "gb"
			words = slices.Delete(words, i, i+1)
		}
	}
	return words
}

// classGB returns the size for the class: the size in the name, unless the device's memory contradicts it. A GH200
// 480GB has 96 GB; its name counts the memory of its CPU.
func classGB(named int, memory job.Size) int {
	gib := float64(memory) / (1 << 30)
	if named > 0 && (memory <= 0 || math.Abs(float64(named)-gib) <= 0.15*float64(named)) {
		return named
	}
	if memory <= 0 {
		return 0
	}
	for _, n := range nominal {
		if float64(n) >= gib-0.05 {
			return n
		}
	}
	return int(math.Ceil(gib))
}

// Match reports whether a user who wants this model means devices of this class. Case does not matter, and want may
// be less specific: H100, h100-80gb and "NVIDIA H100 80GB HBM3" all match h100-80gb. A MIG instance matches only if
// want names MIG: h100-80gb-mig, 1g.10gb.
func Match(want, class string) bool {
	w := strings.Trim(strings.ToLower(strings.TrimSpace(want)), "-")
	if w == "" || class == "" {
		return false
	}
	_, slice, isMIG := strings.Cut(class, "-mig-")
	if isMIG && !strings.Contains(w, "mig") {
		return w == slice
	}
	if isMIG && strings.TrimPrefix(w, "mig-") == slice || w == "mig" && isMIG {
		return true
	}
	return prefixed(w, class) || prefixed(Class(w, 0), class)
}

// prefixed reports whether class is w, or begins with w and a dash.
func prefixed(w, class string) bool {
	rest, ok := strings.CutPrefix(class, w)
	return ok && w != "" && (rest == "" || rest[0] == '-')
}

// Is reports whether the device is what a user means by want, or by one of several names that are joined by
// job.ModelOr. In addition to Match, a form factor in a name (PCIe, SXM, NVL) must be in the driver's name.
func (d Device) Is(want string) bool {
	for name := range strings.SplitSeq(want, job.ModelOr) {
		if d.isOne(name) {
			return true
		}
	}
	return false
}

func (d Device) isOne(want string) bool {
	class := d.Class
	if class == "" {
		class = Class(d.Model, d.Memory)
	}
	if !Match(want, class) {
		return false
	}
	have := nameWords(d.Model)
	for _, w := range nameWords(want) {
		if slices.Contains(forms, w) && !slices.ContainsFunc(have, func(h string) bool { return strings.HasPrefix(h, w) }) {
			return false
		}
	}
	return true
}
