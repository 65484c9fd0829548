package load

// Machines as their daemons would report them.

import (
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

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
