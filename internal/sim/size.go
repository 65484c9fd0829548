package sim

// How many bytes messages have on the wire.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// kind is the kind of a message.
type kind int

const (
	kindOther kind = iota
	kindOwns
	kindOffer
	kindRelease
	kindStart
	kindQuery
	kindSignal
	kindCancel
	kindAck
	kindRenewed
	kindHello
	kindAvailability
	kindCommit
	kindDecline
	kindEvent
	kindRenew
	kindStale
	kinds
)

var kindNames = [kinds]string{
	"other", "Owns", "Offer", "Release", "Start", "Query", "Signal", "Cancel", "Ack", "Renewed",
	"Hello", "Availability", "Commit", "Decline", "Event", "Renew", "Stale",
}

// The lengths of the encoding. A test compares them with the encoding of the sessions.
const (
	sizeMessage  = 6  // its frame and its kind
	sizeAttempt  = 34 // with the job's ID
	sizeEpoch    = 6
	sizeDigest   = 36
	sizeID       = 10 // a random number of 64 bits
	sizeGroup    = 12
	sizeFounding = 18
	sizeResource = 14
	sizeFree     = 14
	sizeFreeGPU  = 12 // beyond its UUID
	sizeDevice   = 21 // beyond its UUID and its model, which is in it twice
	sizeProfile  = 60
	sizeForecast = 16
	sizeKept     = 18 // beyond the job, the user and a byte for each device
	sizeEntry    = 22 // beyond the account
	sizeMember   = 6  // beyond its names
)

// measure returns the kind of a message and its length in bytes. The length is an estimate: numbers are taken to have
// their usual size.
func measure(msg any) (kind, int) {
	const head = sizeMessage + sizeAttempt
	switch m := msg.(type) {
	case contract.Owns:
		n := sizeMessage + 3
		for _, g := range m.Groups {
			if n += sizeGroup; g.Founding != (job.Founding{}) {
				n += sizeFounding
			}
		}
		return kindOwns, n
	case contract.Offer:
		return kindOffer, head + sizeID + sizeEpoch + sizeResource + len(m.Need.GPUModel) + len(m.Device) + len(m.User) + len(m.Project) + 30
	case contract.Release:
		return kindRelease, sizeMessage + sizeID - 3
	case contract.Start:
		return kindStart, head + 2*sizeID + sizeEpoch + len(m.User) + sizeDigest + gangSize(m.Gang)
	case contract.Query:
		return kindQuery, head + sizeEpoch + len(m.Store) + 4
	case contract.Signal:
		return kindSignal, head + sizeEpoch + 4
	case contract.Cancel:
		return kindCancel, head + sizeEpoch + 8 + len(m.Reason)
	case contract.Ack:
		return kindAck, head + sizeEpoch + 4
	case contract.Renewed:
		return kindRenewed, sizeMessage + sizeGroup + 2*sizeID + len(m.Verdicts)*(sizeAttempt+4)
	case contract.Hello:
		return kindHello, sizeMessage + profileSize(&m.Profile) + freeSize(&m.Free)
	case contract.Availability:
		return kindAvailability, sizeMessage + 4 + availabilitySize(&m)
	case contract.Commit:
		n := head + 2*sizeID + 4 + len(m.Address)
		for _, d := range m.Devices {
			n += 2 + len(d)
		}
		return kindCommit, n
	case contract.Decline:
		return kindDecline, head + sizeID + len(m.Reason.Word) + len(m.Reason.Detail) + 6 + freeSize(&m.Free)
	case contract.Event:
		return kindEvent, head + 30 + eventSize(&m)
	case contract.Renew:
		return kindRenew, sizeMessage + len(m.Store) + 2*sizeID + 6 + len(m.Live)*sizeAttempt
	case contract.Stale:
		return kindStale, sizeMessage + sizeGroup + len(m.Owner)
	}
	return kindOther, sizeMessage
}

func freeSize(f *contract.Free) int {
	n := sizeFree + 10*len(f.Preemptible)
	for i := range f.GPUs {
		n += sizeFreeGPU + len(f.GPUs[i].UUID)
	}
	for _, q := range f.Quarantined {
		n += 2 + len(q)
	}
	for i := range f.Foreign {
		n += sizeFreeGPU + len(f.Foreign[i].UUID)
	}
	return n
}

func availabilitySize(m *contract.Availability) int {
	n := freeSize(&m.Free) + len(m.Detail) + len(m.Forecasts)*sizeForecast
	for _, u := range m.UnderQuota {
		n += 2 + len(u)
	}
	for i := range m.Kept {
		n += sizeKept + len(m.Kept[i].Job) + len(m.Kept[i].User) + len(m.Kept[i].GPUs)
	}
	if m.Usage != nil {
		for i := range m.Usage.Entries {
			n += sizeEntry + len(m.Usage.Entries[i].User) + len(m.Usage.Entries[i].Project)
		}
	}
	return n
}

func profileSize(p *contract.Profile) int {
	n := sizeProfile + len(p.Peer) + len(p.Name) + len(p.Version) + len(p.Store)
	for i := range p.GPUs {
		d := &p.GPUs[i]
		n += sizeDevice + len(d.UUID) + len(d.Model) + len(d.Class) + len(d.Links)*(len(d.UUID)+8)
	}
	for k, v := range p.Labels {
		n += 6 + len(k) + len(v)
	}
	return n
}

func eventSize(m *contract.Event) int {
	n := len(m.Isolation) + len(m.Detail) + len(m.Refused)
	for _, d := range m.Devices {
		n += 2 + len(d)
	}
	if m.Exit != nil {
		n += 40 + len(m.Exit.Reason)
	}
	return n
}

// maxCarried is how many job files a session remembers.
const maxCarried = 64

// carry returns the length of the job file, or 0 if the session remembers the file, because it carries each file once.
func (l *link) carry(f *job.File) int {
	sum := f.Digest()
	if slices.Contains(l.carried, sum) {
		return 0
	}
	if len(l.carried) == maxCarried {
		l.carried = slices.Delete(l.carried, 0, 1)
	}
	l.carried = append(l.carried, sum)
	return len(f.Text())
}

func gangSize(g *contract.Gang) int {
	n := 0
	if g != nil {
		for i := range g.Members {
			n += sizeMember + len(g.Members[i].Node) + len(g.Members[i].Name) + len(g.Members[i].Address)
		}
	}
	return n
}
