package fleet

// Classes: which of the classes that hosts advertise are searched for a request.

import (
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// maxSearched bounds the classes that are searched for one request.
const maxSearched = 4

// ClassesFor returns the classes that are searched in turn for hosts of a job. A host of any of them may suit. If the
// job names one host, it is the class of that name: a search of a wider class may not find the one host among many.
// Otherwise they are the classes of the labels that its constraint demands, and the class of its resources, because it
// is not known which of these is the rarest.
func ClassesFor(s job.Spec) []string {
	if name := onlyNode(s); job.CheckLabel(nameFact, name) == nil {
		return []string{contract.NameClass(name)}
	}
	need := s.Resources
	c, err := job.ParseConstraint(s.Constraint)
	if err != nil {
		return []string{contract.AnyWorker}
	}
	var alone, choice []string // of all terms that demand one class, and of the first term that demands one of several
	for _, term := range c.Terms() {
		any := term.AnyOf()
		if len(any) == 1 {
			raise(&need, any[0])
		}
		classes := make([]string, 0, len(any))
		for _, x := range any {
			if class := classOf(x); contract.IsClass(class) {
				classes = append(classes, class)
			}
		}
		switch {
		case len(classes) == 0 || len(classes) < len(any):
		case len(any) == 1 && any[0].Name == nameFact:
			return classes
		case len(any) == 1:
			alone = append(alone, classes...)
		case choice == nil:
			choice = classes
		}
	}
	out := alone
	if len(out) == 0 {
		out = choice
	}
	out = out[:min(len(out), maxSearched-1)]
	if own := contract.ClassOf(need); contract.IsClass(own) && own != contract.AnyWorker && (len(out) == 0 || gpu.Count(need) > 0) {
		out = append(out, own)
	}
	if len(out) == 0 {
		return []string{contract.AnyWorker}
	}
	return out
}

const nameFact = "name"

// onlyNode returns the name of the only node that a job asks for; empty if it asks for several or none.
func onlyNode(s job.Spec) string {
	if len(s.NodeList) != 1 {
		return ""
	}
	name, _, _ := strings.Cut(s.NodeList[0], "=")
	return name
}

// classOf returns the class of the hosts that meet a comparison; empty if there is none.
func classOf(c job.Comparison) string {
	switch {
	case c.Op != "=":
	case c.Label:
		return contract.LabelClass(c.Name, c.Value)
	case c.Name == nameFact:
		return contract.NameClass(c.Value)
	case c.Name == "arch":
		return contract.ArchClass(c.Value)
	}
	return ""
}

// raise raises the need to at least what a comparison demands of each host.
func raise(need *job.Resources, c job.Comparison) {
	if c.Op != ">=" && c.Op != ">" && c.Op != "=" {
		return
	}
	least := c.Amount[0]
	switch c.Name {
	case "memory":
		need.Memory = max(need.Memory, job.Size(least))
	case "cpus":
		need.CPUs = max(need.CPUs, int(least))
	case "gpu.count":
		need.GPUs = max(need.GPUs, int(least))
	case "gpu.memory":
		need.GPUMemory = max(need.GPUMemory, job.Size(least))
		need.GPUs = max(need.GPUs, 1)
	}
}
