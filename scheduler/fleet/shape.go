package fleet

// Requests as hosts see them.

import (
	"github.com/musterhq/muster/job"
)

// Shape is what a user asks for, in whichever of the user's jobs. Tasks of one Shape have the same candidates.
type Shape struct {
	User string
	Need job.Resources // with GPUModel as lease.ModelName gives it
	Foot Footprint     // of Need
	Pool *Pool         // the hosts that meet the rest
	// never holds the hosts that said that they can never run it, and by which of their Hellos.
	never map[job.Peer]uint64
}

// Request is a Shape that one task asks for.
type Request struct {
	*Shape
	Rank Rank
}

// Refuse notes the host's word that it can never run the shape. It holds until the host says Hello again.
func (s *Shape) Refuse(h *Host) {
	if s.never == nil {
		s.never = map[job.Peer]uint64{}
	}
	s.never[h.Peer] = h.hellos
}

// Forget drops what is remembered of a host that is not known any more.
func (s *Shape) Forget(h *Host) { delete(s.never, h.Peer) }

func (s *Shape) refusedBy(h *Host) bool { return len(s.never) > 0 && s.never[h.Peer] == h.hellos }

// OverQuota is why the host would refuse the shape for what its user holds there. It is empty if the host is not
// known to, or if a task may find out.
func (s *Shape) OverQuota(h *Host) string {
	if h.Quotas.Users() == 0 {
		return ""
	}
	return h.Quotas.over(s.User, s.Need)
}

// FitsNow says whether the host could meet the request now.
func (r *Request) FitsNow(h *Host) bool {
	return !h.Claims.full() && h.Devices.Suffices(r.Need, h.LeftFor(&r.Rank))
}
