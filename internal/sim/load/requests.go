package load

// Requests of the placement experiment: what arrives and never leaves.

import (
	"io"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Request is one arrival of the placement experiment, or one row of the table from which the usual requests are
// estimated.
type Request struct {
	Name   string
	GPUs   int    // different devices that it takes
	Milli  int    // thousandths of each of them; 0 if it takes none
	Models string // as the table writes them: the models that will do, joined by |; empty: any
	// Need is the request in the form of the scheduler, with CPUs in thousandths.
	Need job.Resources
}

// AllMilli returns what the request takes of all its devices together, in thousandths of a device.
func (r Request) AllMilli() int { return r.GPUs * r.Milli }

// requestColumns are the columns of the public traces of pods. Only the first five are in all traces. The last five say
// how the pods ran when the trace was taken, which the experiment does not use.
var requestColumns = append(must("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
	may("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")...)

// ReadRequests reads a list of arrivals, or the table of a workload, in the order of the file. Its columns, in any order,
// are
//
//	name        the name
//	cpu_milli   CPUs, in thousandths
//	memory_mib  memory, in MiB
//	num_gpu     number of GPUs
//	gpu_milli   thousandths of each GPU; below 1000 only if num_gpu is 1
//	gpu_spec    optional: models that will do, joined by |; empty: any. It means nothing if num_gpu is 0
//
// and those of the public traces that the experiment does not use: qos, pod_phase, creation_time, deletion_time,
// scheduled_time. An unknown column, a duplicate name, and a value out of range are errors that name the line and the
// column.
func ReadRequests(name string, r io.Reader) ([]Request, error) {
	t, err := openTable(name, r, requestColumns)
	if err != nil {
		return nil, err
	}
	var all []Request
	lines := map[string]int{}
	for t.next(MaxJobs) {
		x := t.request("name")
		if first, twice := lines[x.Name]; twice {
			t.fail("name", "a second request of this name; the first is in line %d", first)
		}
		lines[x.Name] = t.line
		all = append(all, x)
	}
	if err := t.end(); err != nil {
		return nil, err
	}
	return all, nil
}

// request reads what a row asks for. The name is in the given column.
func (t *table) request(name string) Request {
	x := Request{
		Name: t.text(name), GPUs: t.whole("num_gpu", 0, job.MaxGPUs), Milli: t.whole("gpu_milli", 0, gpu.Whole),
		Models: t.text("gpu_spec"),
		Need:   job.Resources{CPUs: t.whole("cpu_milli", 0, maxCPUs*job.MaxNodes), Memory: t.mebibytes("memory_mib")},
	}
	switch {
	case x.Name == "":
		t.fail(name, "it needs a name")
	case x.GPUs == 0 && x.Milli > 0 && x.Milli < gpu.Whole:
		t.fail("gpu_milli", "part of a GPU, but num_gpu is 0")
	case x.GPUs > 0 && x.Milli == 0:
		t.fail("gpu_milli", "nothing of each GPU, but num_gpu is %d", x.GPUs)
	case x.GPUs > 1 && x.Milli < gpu.Whole:
		t.fail("gpu_milli", "part of each of %d GPUs; a part can be taken of one GPU only", x.GPUs)
	}
	switch {
	case x.GPUs == 0:
		x.Milli, x.Models = 0, ""
	case x.Milli < gpu.Whole:
		x.Need.GPUShare = float64(x.Milli) / gpu.Whole
	default:
		x.Need.GPUs = x.GPUs
	}
	if x.Models != "" {
		x.Need.GPUModel = t.models("gpu_spec", x.Models)
	}
	return x
}

// models returns names of models in the spelling of the scheduler.
func (t *table) models(column, text string) string {
	if kept, there := t.texts["="+text]; there {
		return kept
	}
	name := contract.ModelName(text)
	for one := range strings.SplitSeq(name, job.ModelOr) {
		if strings.TrimSpace(one) == "" {
			t.fail(column, "the name of a model is empty; several are written A100%sH100", job.ModelOr)
		}
	}
	if len(t.texts) < maxKept {
		t.texts["="+text] = name
	}
	return name
}
