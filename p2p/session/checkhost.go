package session

// Bounds of what a host says about its users, about the offers that wait there, and about what it has free.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func checkForecasts(all []contract.Forecast) error {
	for _, f := range all {
		set := 0
		for _, d := range []time.Duration{f.Start, f.Kept, f.Shared} {
			if d < 0 || d > contract.MaxForecast {
				return errRange
			}
			if d > 0 {
				set++
			}
		}
		if set > 1 || f.Elsewhere && f.Start == 0 {
			return errForecast
		}
	}
	return within(len(all), contract.MaxForecasts)
}

// checkKept checks what a host keeps for waiting tasks. The GPUs in it are indices of the free GPUs of the same message.
func checkKept(all []contract.Kept, free *contract.Free) error {
	for _, k := range all {
		switch {
		case k.Priority < 0 || k.Priority > job.MaxPriority, k.CPUs < 0 || k.CPUs > job.MaxCPUs, k.Memory < 0,
			k.Milli < 0 || k.Milli > wholeDevice, k.For < 0 || k.For > contract.MaxForecast:
			return errRange
		case len(k.User) > job.MaxName || !printable(k.User):
			return errName
		}
		for i, g := range k.GPUs {
			if g < 0 || g >= len(free.GPUs) || i > 0 && g <= k.GPUs[i-1] {
				return errRange
			}
		}
		if k.Job != "" {
			if _, err := job.ParseID(string(k.Job)); err != nil {
				return fmt.Errorf("the job of something kept: %w", err)
			}
		}
	}
	return within(len(all), contract.MaxKept)
}

// checkUsage bounds the accounts and what they have used. The comparison is written so that NaN is refused.
func checkUsage(u *contract.Usage) error {
	if u == nil {
		return nil
	}
	if err := within(len(u.Entries), contract.MaxUsage); err != nil {
		return err
	}
	for _, e := range u.Entries {
		switch {
		case len(e.User) > job.MaxName || !printable(e.User):
			return errName
		case !(e.Used.GPU >= 0 && e.Used.GPU <= contract.MaxUsed), !(e.Used.CPU >= 0 && e.Used.CPU <= contract.MaxUsed):
			return errRange
		}
		if err := job.CheckProject(e.Project); err != nil {
			return err
		}
	}
	return nil
}

// checkLimits checks the limits of the users of a host.
func checkLimits(l *contract.UserLimits) error {
	if l == nil {
		return nil
	}
	if err := cmp.Or(within(len(l.Users), contract.MaxLimitedUsers), within(l.Size(), contract.MaxLimits)); err != nil {
		return err
	}
	for user, own := range l.Users {
		if user == "" || len(user) > job.MaxName || !printable(user) {
			return errName
		}
		if err := checkLimit(own); err != nil {
			return err
		}
	}
	return cmp.Or(checkLimit(l.PerUser), checkLimit(l.Member))
}

func checkLimit(l contract.Limit) error {
	if err := within(len(l), contract.MaxQuantities); err != nil {
		return err
	}
	for q, n := range l {
		if n < 0 || n > maxLimit || len(q) > maxQuantity {
			return errRange
		}
		if err := checkID(string(q)); err != nil {
			return err
		}
	}
	return nil
}

const (
	maxLimit    = 1 << 53 // small enough to be counted in thousandths
	maxQuantity = 32      // bytes of a name
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
