//go:build cgo && !nonvml

package nvml

// MIG: the instances that a card is split into. If something cannot be read of a card in MIG mode, that is an error:
// the card as a whole cannot be used, and an instance that is not listed would be lost.

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// split returns the card itself, or its MIG instances if it is split. A card in MIG mode without instances has no
// units.
func (c *collector) split(crd *card) ([]unit, error) {
	switch mig, err := c.isMIG(crd.handle); {
	case err != nil:
		return nil, err
	case !mig:
		return []unit{{handle: crd.handle, card: crd, device: crd.device}}, nil
	}
	n, ret := crd.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count its MIG instances: %w", ret)
	}
	var units []unit
	for i := range n {
		handle, ret := crd.handle.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND {
			continue // no instance here
		}
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("its MIG instance %d: %w", i, ret)
		}
		d, err := c.readInstance(handle, crd)
		if err != nil {
			return nil, fmt.Errorf("its MIG instance %d: %w", i, err)
		}
		units = append(units, unit{handle: handle, card: crd, device: d})
	}
	return units, nil
}

func (l *library) isMIG(handle nvml.Device) (bool, error) {
	for _, symbol := range []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"} {
		if !l.has(symbol) {
			return false, nil
		}
	}
	mode, _, ret := handle.GetMigMode()
	if !told(ret) {
		return false, fmt.Errorf("its MIG mode: %w", ret)
	}
	return ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE, nil
}

// readInstance returns a MIG instance: a copy of its card with the values of the instance.
func (c *collector) readInstance(handle nvml.Device, of *card) (gpu.Device, error) {
	d := of.device
	d.Parent = of.device.UUID
	uuid, ret := handle.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return d, fmt.Errorf("its UUID: %w", ret)
	}
	d.UUID = uuid
	if c.has("nvmlDeviceGetGpuInstanceId") {
		if id, ret := handle.GetGpuInstanceId(); ret == nvml.SUCCESS {
			d.Instance = strconv.Itoa(id)
		}
	}
	if d.Memory, _, ret = c.memory(handle); ret != nvml.SUCCESS {
		return d, fmt.Errorf("its memory: %w", ret)
	}
	name, ret := handle.GetName()
	if !told(ret) {
		return d, fmt.Errorf("its name: %w", ret)
	}
	if ret != nvml.SUCCESS || !strings.Contains(name, " MIG ") {
		profile, err := c.profile(handle, d.Memory)
		if err != nil {
			return d, err
		}
		name = of.device.Model + " MIG " + profile
	}
	d.Model = name
	d.Class = gpu.Class(d.Model, of.device.Memory)
	if of.minor < 0 {
		return d, nil
	}
	more, err := c.capabilities(handle, of.minor)
	d.Nodes = append(append([]gpu.Node{}, of.device.Nodes...), more...)
	return d, err
}

// profile returns the profile name of an instance, for libraries that do not report it.
func (l *library) profile(handle nvml.Device, memory job.Size) (string, error) {
	if !l.has("nvmlDeviceGetAttributes_v2") {
		return "", errors.New("its profile: the library does not tell")
	}
	a, ret := handle.GetAttributes()
	if ret != nvml.SUCCESS {
		return "", fmt.Errorf("its profile: %w", ret)
	}
	return fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, int(math.Ceil(float64(memory)/(1<<30)))), nil
}

// capabilities returns the device files that a program needs for an instance besides those of its card. Without them the
// instance would be closed to its own task, or open to the tasks of others.
func (c *collector) capabilities(handle nvml.Device, minor int) ([]gpu.Node, error) {
	gpuInstance, ret := handle.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("its GPU instance: %w", ret)
	}
	computeInstance, ret := handle.GetComputeInstanceId()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("its compute instance: %w", ret)
	}
	nodes, err := c.kernel.Capabilities(minor, gpuInstance, computeInstance)
	if err != nil {
		return nil, fmt.Errorf("its device files: %w", err)
	}
	return nodes, nil
}
