package sim

// Machines of the load as hosts of the world.

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// addMachine adds the daemon of a machine of the load.
func (w *World) addMachine(index int) (*host, error) {
	m := &w.cfg.Load.Machines[index]
	p := contract.Profile{
		Peer: job.Peer(fmt.Sprintf("sim-%06d", index)), Name: m.Name, CPUs: m.CPUs, Memory: m.Memory, Labels: m.Labels,
		Drivers: []string{contract.DriverExec}, Worker: true, Arch: "amd64", OS: "linux",
	}
	if m.GPUs < 0 || m.GPUs > contract.MaxGPUs || m.CPUs < 0 || m.CPUs > job.MaxCPUs || m.Memory < 0 {
		return nil, fmt.Errorf("sim: machine %s: %d GPUs, %d thousandths of a CPU, %s of memory: out of bounds", m.Name, m.GPUs, m.CPUs, m.Memory)
	}
	class := strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(m.Model), " ", "-"), "nvidia-")
	for k := range m.GPUs {
		p.GPUs = append(p.GPUs, gpu.Device{
			UUID: fmt.Sprintf("GPU-%d-%d", index, k), Index: k, Model: m.Model, Class: class, Memory: m.DeviceMemory, NUMA: -1, Simulated: true,
		})
	}
	return w.addHost(p), nil
}

// addHost adds a daemon with a worker. It runs from the beginning.
func (w *World) addHost(p contract.Profile) *host {
	n := len(w.hosts)
	h := &host{w: w, index: n, peer: p.Peer, links: map[job.Peer]*link{}, deviceAt: map[string]int{}}
	h.power, h.disk, h.store = true, newDisk(), fmt.Sprintf("store-%d-0", n)
	h.clock.bootAt = -between(w.chance, minUptime, maxUptime)
	h.speed, h.procs = 1, map[job.Attempt]*proc{}
	h.cfg = worker.DefaultConfig()
	h.cfg.Shares, h.cfg.Profile = w.cfg.Shares, p
	h.cfg.IP = h.address()
	h.profiled()
	h.turnFn = h.run
	h.alarm = alarm{w: w, peer: h.peer, turn: h.turn, ring: h.awake}
	w.hosts = append(w.hosts, h)
	w.hostOf[h.peer] = h
	return h
}

// profiled updates what depends on the profile of the host.
func (h *host) profiled() {
	for _, c := range h.classes {
		all := h.w.classes[c]
		for i, other := range all {
			if other == h {
				h.w.classes[c] = append(all[:i:i], all[i+1:]...)
				break
			}
		}
	}
	h.classes = contract.Classes(h.cfg.Profile)
	for _, c := range h.classes {
		h.w.classes[c] = append(h.w.classes[c], h)
	}
	for i, d := range h.cfg.Profile.GPUs {
		h.deviceAt[d.UUID] = i
	}
}

// address returns the IP address of the host.
func (h *host) address() string {
	return fmt.Sprintf("10.%d.%d.%d", h.index/62_500, h.index/250%250, h.index%250+1)
}
