package session

// The check of what a host says it has free.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func checkFree(f contract.Free) error {
	if f.CPUs < 0 || f.CPUs > job.MaxCPUs || f.Memory < 0 || f.Tasks < 0 || f.Tasks > contract.MaxLive {
		return errRange
	}
	if err := within(len(f.GPUs), contract.MaxGPUs); err != nil {
		return err
	}
	for _, g := range f.GPUs {
		if g.Memory < 0 || g.Milli < 0 || g.Milli > wholeDevice {
			return errRange
		}
		if err := checkID(g.UUID); err != nil {
			return err
		}
	}
	if repeated(f.GPUs) {
		return errSame
	}
	before := -1
	if err := within(len(f.Preemptible), contract.MaxPreemptible); err != nil {
		return err
	}
	for _, y := range f.Preemptible { // in rising order
		if y.Precedence() <= before || y.Level < 0 || y.Level > contract.MaxLevel || y.Priority < 0 || y.Priority > job.MaxPriority || y.CPUs < 0 || y.CPUs > maxHeld || y.Memory < 0 || y.GPUs < 0 || y.GPUs > maxHeld {
			return errRange
		}
		before = y.Precedence()
	}
	if err := checkForeign(f.Foreign); err != nil {
		return err
	}
	return checkDevices(f.Quarantined)
}

// checkForeign checks how much GPU memory programs use that muster did not start.
func checkForeign(all []contract.ForeignUse) error {
	if err := within(len(all), contract.MaxForeign); err != nil {
		return err
	}
	for _, u := range all {
		if u.Memory < 0 || u.PID < 0 || u.PID > maxPID || u.Others < 0 || u.Others > maxPID {
			return errRange
		}
		if err := checkID(u.UUID); err != nil {
			return err
		}
	}
	return nil
}

// repeated reports whether a device is listed twice. For up to 16 devices it allocates nothing.
func repeated(devices []contract.FreeGPU) bool {
	if len(devices) > 16 {
		seen := make(map[string]bool, len(devices))
		for i := range devices {
			seen[devices[i].UUID] = true
		}
		return len(seen) < len(devices)
	}
	for i := range devices {
		for j := range i {
			if devices[i].UUID == devices[j].UUID {
				return true
			}
		}
	}
	return false
}

// maxHeld bounds the CPUs and devices of many tasks together. Shares of a device count once for each task.
const maxHeld = 1 << 30
