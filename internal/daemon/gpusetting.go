package daemon

// The setting gpus, which selects the GPU driver of this host and the GPUs that it offers.

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/gpu/simgpu"
)

// selection names the GPUs to offer, by indexes, UUIDs and unique prefixes of UUIDs. Nil: all.
type selection []string

const (
	// minPrefix is the length of the shortest prefix of a UUID that may name a GPU. It is longer than "GPU-" and "MIG-",
	// with which UUIDs begin.
	minPrefix = 5
	maxThere  = 16 // bounds the GPUs that an error lists
	// maxSelected bounds the words of the setting. It is several times the GPUs and instances of the largest host.
	maxSelected = 1024
)

// simulated is the prefix of a setting gpus that asks for simulated devices.
const simulated = "sim:"

// parseGPUs parses the setting gpus. It returns a simulated driver, or the GPUs to offer.
func parseGPUs(text, name string) (sim *simgpu.Driver, only selection, err error) {
	switch {
	case text == "auto":
		return nil, nil, nil
	case text == "none":
		return simgpu.None(), nil, nil
	case strings.HasPrefix(text, simulated):
		sim, err = simgpu.Parse(text, name)
		return sim, nil, err
	}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if i, err := strconv.Atoi(word); err == nil && i >= 0 {
			word = strconv.Itoa(i)
		} else if len(word) < minPrefix || !strings.Contains(word, "-") || strings.ContainsAny(word, " \t\n") {
			return nil, nil, fmt.Errorf("%.80q: want auto, none, indexes such as 0,1, UUIDs or their beginnings, or sim:8xH100-80GB", text)
		}
		only = append(only, word)
	}
	if len(only) > maxSelected {
		return nil, nil, fmt.Errorf("%d GPUs are named; at most %d", len(only), maxSelected)
	}
	return nil, only, nil
}

// of returns which of the listed GPUs are selected, and a text about selected GPUs that are missing. It reports none as
// missing while the driver lists no GPU. The index or UUID of a GPU that is split selects its instances.
func (s selection) of(listed []gpu.Device) (selected []gpu.Device, missing string) {
	if s == nil || len(listed) == 0 {
		return listed, ""
	}
	var without []string
	named := map[string]bool{} // by UUID
	for _, word := range s {
		found, why := find(listed, word)
		if why != "" {
			without = append(without, why)
		}
		for _, dev := range found {
			named[dev.UUID] = true
		}
	}
	for _, dev := range listed {
		if named[dev.UUID] {
			selected = append(selected, dev)
		}
	}
	if without != nil {
		missing = fmt.Sprintf("%s; this host has %s", strings.Join(without, ", "), there(listed))
	}
	return selected, missing
}

// find returns the GPUs that a word of the setting names, or why there are none.
func find(listed []gpu.Device, word string) (found []gpu.Device, why string) {
	if index, err := strconv.Atoi(word); err == nil {
		for _, dev := range listed {
			if dev.Index == index {
				found = append(found, dev)
			}
		}
		if found == nil {
			why = fmt.Sprintf("no GPU has the index %d", index)
		}
		return found, why
	}
	var names []string // UUIDs that begin with the word
	for _, dev := range listed {
		for _, uuid := range []string{dev.UUID, dev.Parent} {
			if uuid != "" && hasPrefixFold(uuid, word) && !slices.Contains(names, uuid) {
				names = append(names, uuid)
			}
		}
	}
	if exact := slices.IndexFunc(names, func(uuid string) bool { return strings.EqualFold(uuid, word) }); exact >= 0 {
		names = names[exact : exact+1]
	}
	switch len(names) {
	case 0:
		return nil, "no GPU has the UUID " + word
	case 1:
		return slices.DeleteFunc(slices.Clone(listed), func(dev gpu.Device) bool { return dev.UUID != names[0] && dev.Parent != names[0] }), ""
	}
	return nil, fmt.Sprintf("%s is the beginning of %d UUIDs", word, len(names))
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// there lists the GPUs of the host, for an error.
func there(listed []gpu.Device) string {
	var all []string
	for i, dev := range listed {
		if i == maxThere {
			all = append(all, fmt.Sprintf("%d more", len(listed)-i))
			break
		}
		all = append(all, fmt.Sprintf("%d %s", dev.Index, dev.UUID))
	}
	return strings.Join(all, ", ")
}

// gpuDriver returns the driver that the setting gpus selects, and the GPUs to offer.
//
//nolint:ireturn // it is one of several drivers
func gpuDriver(cfg Config, log *slog.Logger) (gpu.Driver, selection, error) {
	sim, only, err := parseGPUs(cfg.GPUs, cfg.Name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("gpus: %w", err)
	case sim != nil:
		if cfg.GPUs != "none" {
			log.Warn("GPUs are simulated: tasks get no hardware", "gpus", cfg.GPUs)
		}
		return sim, nil, nil
	}
	nc := nvml.DefaultConfig()
	nc.Command, nc.Libraries = []string{cfg.Program, "nvml-agent"}, cfg.gpuLibraries
	d, err := nvml.New(nc, log)
	if err != nil {
		return nil, nil, fmt.Errorf("gpus: %w", err)
	}
	return d, only, nil
}
