package contract

// The weight of a message: about how many bytes it takes in memory. It bounds queues of messages.

import "github.com/musterhq/muster/gpu"

// What the parts of a message weigh. A part is a struct with strings of the usual length.
const (
	weightOfAny    = 256 // of a message without lists
	weightOfDevice = 384 // in a profile
	weightOfLink   = 80
	weightOfEntry  = 64  // an entry of any other list
	weightOfUsage  = 128 // an entry of a report of usage
	weightOfMember = 256 // of a gang
)

// Weight returns the weight of a message. A value of any other type weighs weightOfAny.
func Weight(msg any) int {
	w := weightOfAny
	switch m := msg.(type) {
	case Hello:
		w += weightOfProfile(&m.Profile) + weightOfFree(&m.Free)
	case Availability:
		w += weightOfFree(&m.Free) + len(m.Detail) + weightOfEntry*(len(m.UnderQuota)+len(m.Forecasts))
		if m.Usage != nil {
			w += weightOfUsage * len(m.Usage.Entries)
		}
	case Commit:
		w += weightOfEntry * len(m.Devices)
	case Decline:
		w += weightOfFree(&m.Free)
	case Event:
		w += weightOfEntry*len(m.Devices) + len(m.Detail) + len(m.Refused)
		if m.Exit != nil {
			w += len(m.Exit.Tail) + len(m.Exit.Usage) + len(m.Exit.Reason)
		}
	case Renew:
		w += weightOfEntry * len(m.Live)
	case Owns:
		w += weightOfEntry * len(m.Groups)
	case Offer:
		w += len(m.Token)
	case Start:
		w += len(m.Element.Entry)
		if m.File != nil {
			w += len(m.File.Text())
		}
		if m.Gang != nil {
			w += weightOfMember * len(m.Gang.Members)
		}
	case Renewed:
		w += weightOfEntry * len(m.Verdicts)
	}
	return w
}

func weightOfProfile(p *Profile) int {
	return weightOfEntry*(len(p.Labels)+len(p.Signed)+len(p.Drivers)+len(p.Mounts)) + weightOfGPUs(p.GPUs)
}

func weightOfGPUs(all []gpu.Device) int {
	w := weightOfDevice * len(all)
	for i := range all {
		w += weightOfLink * len(all[i].Links)
	}
	return w
}

func weightOfFree(f *Free) int {
	return weightOfEntry * (len(f.GPUs) + len(f.Quarantined) + len(f.Preemptible) + len(f.Foreign))
}
