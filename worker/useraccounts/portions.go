package useraccounts

// Portions divide a limited number so that no scheduler takes all of it.

import "github.com/musterhq/muster/job"

// Portions counts what peers have of a limited number. A peer gets one more if it then has no more than are still free.
// So the first peer can get half, and the next one half of the rest.
type Portions struct {
	most, used int
	of         map[job.Peer]int
}

// NewPortions returns a number that is not divided yet: no peer has a part of it.
func NewPortions(most int) *Portions { return &Portions{most: most, of: map[job.Peer]int{}} }

// Fits reports whether a peer may have one more.
func (p *Portions) Fits(who job.Peer) bool { return p.of[who] < p.most-p.used-1 }

// Add counts n more for a peer; if n is negative, the peer gives them back.
func (p *Portions) Add(who job.Peer, n int) {
	p.used += n
	if p.of[who] += n; p.of[who] == 0 {
		delete(p.of, who)
	}
}
