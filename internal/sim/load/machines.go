package load

// Lists of machines, and the machines as their daemons would report them.

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Labels that a list of machines has as columns.
const (
	RackLabel = "rack"
	LeafLabel = "leaf"
)

const (
	maxGPUs   = 64 // of a machine, as of a simulated host of a daemon
	maxLabels = 64 // of a machine
	// DefaultDeviceMemory is the memory of a GPU if neither the list nor the name of its model says it.
	DefaultDeviceMemory = job.Size(16 << 30)
)

var machineColumns = append(must("sn", "cpu_milli", "memory_mib", "gpu", "model"), may(RackLabel, LeafLabel, "device_memory_mib", "labels")...)

// ReadMachines reads a list of machines. Name is what errors call it. Its columns, in any order, are
//
//	sn                 the name
//	cpu_milli          CPUs, in thousandths
//	memory_mib         memory, in MiB
//	gpu                number of GPUs
//	model              model of the GPUs; empty if there are none
//	rack, leaf         optional: labels of these names
//	device_memory_mib  optional: memory of each GPU, in MiB; by default as the name of the model says, else DefaultDeviceMemory
//	labels             optional: further labels, as "zone=a;disk=fast"
//
// An unknown column, a duplicate name, and a value out of range are errors that name the line and the column.
func ReadMachines(name string, r io.Reader) ([]Machine, error) {
	t, err := openTable(name, r, machineColumns)
	if err != nil {
		return nil, err
	}
	var all []Machine
	lines := map[string]int{}
	for t.next(MaxMachines) {
		m := t.machine()
		if first, twice := lines[m.Name]; twice {
			t.fail("sn", "a second machine of this name; the first is in line %d", first)
		}
		lines[m.Name] = t.line
		all = append(all, m)
	}
	if err := t.end(); err != nil {
		return nil, err
	}
	return all, nil
}

func (t *table) machine() Machine {
	m := Machine{
		Name: t.text("sn"), CPUs: t.whole("cpu_milli", 0, maxCPUs), Memory: t.mebibytes("memory_mib"),
		GPUs: t.whole("gpu", 0, maxGPUs), Model: t.text("model"),
	}
	switch {
	case m.Name == "":
		t.fail("sn", "a machine needs a name")
	case m.GPUs > 0 && m.Model == "":
		t.fail("model", "the machine has GPUs, so their model is needed")
	case m.GPUs == 0 && m.Model != "":
		t.fail("model", "the machine has no GPUs; leave it empty")
	case strings.Contains(m.Model, job.ModelOr):
		t.fail("model", "the GPUs of a machine have one model")
	}
	if m.GPUs > 0 {
		m.DeviceMemory = memoryOf(m.Model)
	}
	if t.field("device_memory_mib") != "" {
		m.DeviceMemory = t.mebibytes("device_memory_mib")
		if m.GPUs > 0 && m.DeviceMemory == 0 {
			t.fail("device_memory_mib", "a GPU without memory")
		}
	}
	t.setLabels(&m)
	return m
}

// setLabels reads the labels of a machine.
func (t *table) setLabels(m *Machine) {
	set := func(column, k, v string) {
		err := job.CheckLabel(k, v)
		switch _, twice := m.Labels[k]; {
		case k == "" || v == "":
			t.fail(column, "want NAME=VALUE;NAME=VALUE")
		case err != nil:
			t.fail(column, "%w", err)
		case twice:
			t.fail(column, "the label %q is there twice", k)
		case len(m.Labels) >= maxLabels:
			t.fail(column, "more than %d labels", maxLabels)
		default:
			m.label(k, v)
		}
	}
	for _, column := range []string{RackLabel, LeafLabel} {
		if v := t.text(column); v != "" {
			set(column, column, v)
		}
	}
	if text := t.text("labels"); text != "" {
		for pair := range strings.SplitSeq(text, ";") {
			k, v, _ := strings.Cut(pair, "=")
			set("labels", strings.TrimSpace(k), strings.TrimSpace(v))
		}
	}
}

func (m *Machine) label(k, v string) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[k] = v
}

var modelMemory = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)[- ]([0-9]{1,4})gi?b?\b`)
})

// memoryOf returns the memory in a model's name: 80 GiB for H100-80GB.
func memoryOf(model string) job.Size {
	if m := modelMemory().FindStringSubmatch(model); m != nil {
		if gib, _ := strconv.Atoi(m[1]); gib > 0 {
			return job.Size(gib) << 30
		}
	}
	return DefaultDeviceMemory
}

// Class returns the class of the machine's GPUs: the model as requests name it, in lower case.
func (m Machine) Class() string { return contract.ModelName(m.Model) }

const machinesUse = "write it like 512x8xH100-80GB,64cpu,512GiB, and join groups with +"

var (
	gpuPart = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:([0-9]{1,6})x)?(?:([0-9]{1,3})x)?([A-Za-z][A-Za-z0-9. -]{0,63})$`)
	})
	cpuPart = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([0-9]+(?:\.[0-9]{1,3})?) ?cpus?$`)
	})
)

// ParseMachines reads groups of equal machines, such as "512x8xH100-80GB,64cpu,512GiB": 512 machines, each with 8 GPUs of
// that model, 64 CPUs and 512 GiB of memory. Groups are joined with +. "100x,32cpu,128GiB" has no GPUs, and
// "8xT4,16cpu,64GiB" is one machine with 8 GPUs. The machines are named host-00000 and so on.
func ParseMachines(text string) ([]Machine, error) {
	var all []Machine
	for group := range strings.SplitSeq(text, "+") {
		n, m, err := parseGroup(strings.TrimSpace(group))
		if err != nil {
			return nil, fmt.Errorf("machines %.80q: %w", text, err)
		}
		if len(all)+n > MaxMachines {
			return nil, fmt.Errorf("machines %.80q: more than %d machines", text, MaxMachines)
		}
		for range n {
			m.Name = fmt.Sprintf("host-%05d", len(all))
			all = append(all, m)
		}
	}
	return all, nil
}

// parseGroup returns the number of machines of a group, and one of them.
func parseGroup(text string) (n int, m Machine, err error) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return 0, m, fmt.Errorf("%.60q has %d parts and not 3; %s", text, len(parts), machinesUse)
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if n, m, err = parseGPUs(parts[0]); err != nil {
		return 0, m, err
	}
	cpus := cpuPart().FindStringSubmatch(parts[1])
	if cpus == nil {
		return 0, m, fmt.Errorf("%.40q is not a number of CPUs, such as 64cpu; %s", parts[1], machinesUse)
	}
	x, err := strconv.ParseFloat(cpus[1], 64)
	if err != nil || x*milli > maxCPUs {
		return 0, m, fmt.Errorf("%.40q: at most %d CPUs", parts[1], maxCPUs/milli)
	}
	m.CPUs = int(x*milli + 0.5)
	if m.Memory, err = job.ParseSize(parts[2]); err != nil {
		return 0, m, err
	}
	if m.Memory > maxMemory {
		return 0, m, fmt.Errorf("%.40q: at most %s", parts[2], job.Size(maxMemory))
	}
	return n, m, nil
}

// parseGPUs reads 512x8xH100-80GB, 8xH100-80GB, or 512x for machines without GPUs.
func parseGPUs(text string) (n int, m Machine, err error) {
	if count, plain := strings.CutSuffix(text, "x"); plain {
		if n, err = strconv.Atoi(count); err != nil || n < 1 || n > MaxMachines {
			return 0, m, fmt.Errorf("%.40q: want 1 to %d machines; %s", text, MaxMachines, machinesUse)
		}
		return n, m, nil
	}
	p := gpuPart().FindStringSubmatch(text)
	if p == nil {
		return 0, m, fmt.Errorf("%.40q is not a number of machines and GPUs; %s", text, machinesUse)
	}
	n, m.GPUs, m.Model = 1, 1, p[3]
	if p[1] != "" {
		n, _ = strconv.Atoi(p[1]) // six digits at most
	}
	if p[2] != "" {
		m.GPUs, _ = strconv.Atoi(p[2])
	} else if p[1] != "" {
		n, m.GPUs = 1, n // 8xH100 is one machine
	}
	switch {
	case n < 1 || n > MaxMachines:
		return 0, m, fmt.Errorf("%.40q: want 1 to %d machines", text, MaxMachines)
	case m.GPUs < 1 || m.GPUs > maxGPUs:
		return 0, m, fmt.Errorf("%.40q: want 1 to %d GPUs of a machine", text, maxGPUs)
	}
	m.DeviceMemory = memoryOf(m.Model)
	return n, m, nil
}

// defaultDeviceMemory is the memory of GPUs for which none is given.
const defaultDeviceMemory = 16 << 30

// Profile returns what the daemon of the machine would report. CPUs are in thousandths. The UUID of each GPU ends with
// its index.
func (m *Machine) Profile() contract.Profile {
	p := contract.Profile{
		Peer: job.Peer(m.Name), Name: m.Name, Store: m.Name, Labels: m.Labels, CPUs: m.CPUs, Memory: m.Memory,
		Drivers: []string{contract.DriverExec}, Worker: true,
	}
	memory := m.DeviceMemory
	if memory == 0 {
		memory = defaultDeviceMemory
	}
	for i := range m.GPUs {
		p.GPUs = append(p.GPUs, gpu.Device{
			UUID: m.UUID(i), Index: i, Model: m.Model, Class: contract.ModelName(m.Model), Memory: memory, Simulated: true,
		})
	}
	return p
}

// UUID returns the UUID of a GPU of the machine.
func (m *Machine) UUID(index int) string { return fmt.Sprintf("sim-%s-%d", m.Name, index) }
