package state

// The hosts on which attempts of a job ran.

import (
	"slices"
	"unsafe"

	"github.com/musterhq/muster/job"
)

// host is a host on which attempts ran.
type host struct {
	peer    job.Peer
	name    string
	store   string
	fencing job.Fencing // as it said when it got an attempt; the same host may be listed several times
}

// hosts numbers the hosts of a job. Number 0 means no host.
type hosts struct {
	list []host
	at   map[host]uint32 // index in list; nil while there are few
}

// hostBytes is the memory of a host in the list and in the map.
const hostBytes = 2 * int(unsafe.Sizeof(host{}))

func newHosts() *hosts { return &hosts{list: make([]host, 1, 2)} }

// manyHosts is the number of hosts from which on a map is faster than searching the list.
const manyHosts = 16

// of returns the number of a host, and adds the host if it is new.
func (hs *hosts) of(h host) uint32 {
	if h == (host{}) {
		return 0
	}
	if hs.at == nil {
		if i := slices.Index(hs.list, h); i >= 0 {
			return uint32(i)
		}
	} else if i, there := hs.at[h]; there {
		return i
	}
	hs.list = append(hs.list, h)
	at := uint32(len(hs.list) - 1)
	if hs.at != nil {
		hs.at[h] = at
	} else if len(hs.list) > manyHosts {
		hs.at = make(map[host]uint32, 2*manyHosts)
		for i, h := range hs.list {
			hs.at[h] = uint32(i)
		}
	}
	return at
}
