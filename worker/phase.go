package worker

// The phases of an attempt on this host, and the legal moves between them.
// See docs/adr, ADR 71.

import "github.com/musterhq/muster/lease"

// phase is how far an attempt has come here. On disk several phases are one lease.Phase, as a restart ends all that was
// on its way.
type phase int

const (
	reserving  phase = iota // its reservation is on its way to the disk: no Commit was sent
	reserved                // its Commit was sent: it lapses unless a Start comes
	asked                   // its Start waits for a renewal of the lease, then for the host's policy
	starting                // the record of its start is on its way to the disk
	launched                // the driver was asked for its process
	completing              // its processes are gone, the memory of its devices is not back yet
	done                    // it ended
	refused                 // it was never started here, and never will be
)

// moves are the legal moves. A reservation that lapses or is released is forgotten from where it is.
var moves = map[phase][]phase{
	reserving:  {reserved, asked, refused}, // asked at once: a Start has come for a reservation that had lapsed
	reserved:   {asked, refused},
	asked:      {starting, refused},
	starting:   {launched, done, refused}, // done: it was cancelled before
	launched:   {completing, done},        // done: the driver could not start it
	completing: {done},
	done:       {},
	refused:    {},
}

func (p phase) String() string {
	return [...]string{"reserving", "reserved", "asked", "starting", "launched", "completing", "done", "refused"}[p]
}

// onDisk is what a record says of the phase.
func (p phase) onDisk() lease.Phase {
	switch p {
	case reserving, reserved, asked:
		return lease.PhaseReserved
	case starting, launched, completing:
		return lease.PhaseStarted
	case done:
		return lease.PhaseDone
	case refused:
	}
	return lease.PhaseRefused
}

// phaseOf is the phase that a restarted worker finds an attempt in, from a record that is not of a reservation.
func phaseOf(rec lease.Record) phase {
	switch {
	case rec.Phase == lease.PhaseStarted && rec.Exit != nil:
		return completing
	case rec.Phase == lease.PhaseStarted:
		return launched
	case rec.Phase == lease.PhaseDone:
		return done
	}
	return refused
}
