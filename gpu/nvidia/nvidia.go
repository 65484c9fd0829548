// Package nvidia holds the words and numbers of NVIDIA that users and the kernel know: the variables that choose the GPUs
// of a program, the device files, the Xid errors. It calls no library. The driver gpu/nvml uses it, and so does
// gpu/simgpu, whose devices pass for those of NVIDIA.
package nvidia

import (
	"strings"

	"github.com/musterhq/muster/gpu"
)

const (
	cdiGPU       = "nvidia.com/gpu="
	engineDriver = "nvidia"
)

// Grant returns what a task with these devices gets.
func (k *Kernel) Grant(devices []gpu.Device) gpu.Grant {
	uuids, engine := make([]string, len(devices)), gpu.Engine{}
	for i, d := range devices {
		uuids[i] = d.UUID
		if !d.Simulated {
			engine.IDs = append(engine.IDs, d.UUID)
			engine.CDI = append(engine.CDI, cdiGPU+d.UUID)
		}
	}
	if len(engine.IDs) > 0 {
		engine.Driver, engine.Capabilities = engineDriver, []string{"gpu", "compute", "utility"}
	}
	visible := strings.Join(uuids, ",")
	return gpu.Grant{
		Env: map[string]string{
			"CUDA_VISIBLE_DEVICES": visible, "NVIDIA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
		},
		Closed: k.closed(devices),
		Engine: engine,
	}
}
