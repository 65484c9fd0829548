package sim

// Messages on the wire: which of them no session would take, and how they look in a log.

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// brief returns a message as text for a line of the log.
func brief(msg any) string {
	switch m := msg.(type) {
	case contract.Offer:
		return fmt.Sprintf("Offer %x of %s: %s, priority %d, %s, waits %v, age %v, gang %d firm %v preempt %v spare %v elsewhere %v", m.ID, m.Attempt, needText(m.Need), m.Priority, m.User, m.Wait, m.Age, m.Gang, m.Firm, m.Preempt, m.Spare, m.Elsewhere)
	case contract.Commit:
		return fmt.Sprintf("Commit %x of %s, session %x, devices %v, %s port %d, conditional %v", m.Offer, m.Attempt, m.Session, m.Devices, m.Address, m.Port, m.Conditional)
	case contract.Decline:
		return fmt.Sprintf("Decline %x of %s: %s, never %v, %s", m.Offer, m.Attempt, m.Reason, m.Never, briefFree(m.Free))
	case contract.Release:
		return fmt.Sprintf("Release %x", m.Offer)
	case contract.Start:
		return fmt.Sprintf("Start %x of %s, session %x", m.Offer, m.Attempt, m.Session)
	case contract.Hello:
		return fmt.Sprintf("Hello %s, %s", m.Profile.Store, briefFree(m.Free))
	case contract.Availability:
		var text strings.Builder
		fmt.Fprintf(&text, "Availability %s, draining %v %s", briefFree(m.Free), m.Draining, m.Detail)
		for _, f := range m.Forecasts {
			fmt.Fprintf(&text, "; offer %x starts %v kept %v shared %v elsewhere %v", f.Offer, f.Start, f.Kept, f.Shared, f.Elsewhere)
		}
		for _, k := range m.Kept {
			fmt.Fprintf(&text, "; keeps %d GPUs for %s", len(k.GPUs), k.Job)
		}
		return text.String()
	case contract.Event:
		return fmt.Sprintf("Event %d of %s: %s %s", m.N, m.Attempt, m.State, m.Refused)
	}
	return fmt.Sprintf("%T %+v", msg, msg)
}

func briefFree(f contract.Free) string {
	return fmt.Sprintf("free %d CPUs %d GPUs", f.CPUs, len(f.GPUs))
}

func needText(r job.Resources) string { return fmt.Sprintf("%d CPUs, %d GPUs", r.CPUs, gpu.Count(r)) }

// wireRefuses returns why a session between two daemons would not take the message; empty if it would. It checks only
// what a core computes, not what a user writes.
func wireRefuses(msg any) string {
	switch m := msg.(type) {
	case contract.Offer:
		switch {
		case m.Age < 0:
			return "a negative age of " + m.Age.String()
		case m.Limit < 0 || m.Limit > contract.MaxLimit:
			return "a limit of " + m.Limit.String()
		case m.Wait < 0 || m.Wait > contract.MaxOfferWait:
			return "a wait of " + m.Wait.String()
		}
	case contract.Cancel:
		if m.Grace < 0 || m.Grace > time.Hour {
			return "a grace of " + m.Grace.String()
		}
	case contract.Renew:
		if len(m.Live) > contract.MaxLive {
			return "too many live attempts"
		}
	case contract.Availability:
		if len(m.UnderQuota) > contract.MaxUnderQuota {
			return "too many users under quota"
		}
		if len(m.Forecasts) > contract.MaxForecasts {
			return "too many forecasts"
		}
		return toldRefused(&m)
	}
	return ""
}

// toldRefused returns what is out of bounds in the forecasts of a host, and in what it tells of its users.
func toldRefused(m *contract.Availability) string {
	for _, f := range m.Forecasts {
		if max(f.Start, f.Kept, f.Shared) != f.Start+f.Kept+f.Shared || min(f.Start, f.Kept, f.Shared) < 0 {
			return fmt.Sprintf("a forecast %+v", f)
		}
	}
	if m.Usage != nil {
		return usageRefused(m.Usage)
	}
	return ""
}

// usageRefused returns what is out of bounds in what a host tells of its users.
func usageRefused(u *contract.Usage) string {
	if len(u.Entries) > contract.MaxUsage {
		return "the usage of too many accounts"
	}
	for _, e := range u.Entries {
		if !(e.Used.GPU >= 0 && e.Used.GPU <= contract.MaxUsed) || !(e.Used.CPU >= 0 && e.Used.CPU <= contract.MaxUsed) {
			return fmt.Sprintf("usage of %v by %s", e.Used, e.Account)
		}
	}
	return ""
}
