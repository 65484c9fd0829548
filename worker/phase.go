package worker

// The phases of an attempt on this host, and the legal moves between them.
// See docs/adr, ADR 71.

import "github.com/musterhq/muster/internal/contract"

// phase is how far an attempt has come on this host. Several phases have the same contract.Phase on disk, because a restart
// treats them alike.
type phase int

const (
	reserving  phase = iota // its reservation is being written to disk; no Commit was sent
	reserved                // its Commit was sent; it lapses unless a Start comes
	asked                   // its Start waits for a renewal of the lease, then for the host's policy
	starting                // the record of its start is being written to disk
	launched                // the driver was asked to start it
	completing              // its processes are gone, but the memory of its devices is not free yet
	done                    // it has ended
	refused                 // it was not started here, and never will be
)

// moves are the legal moves. If a reservation lapses or is released, its attempt is dropped, which is not a move.
var moves = map[phase][]phase{
	reserving:  {reserved, asked, refused}, // asked: a Start came for a reservation that had lapsed
	reserved:   {asked, refused},
	asked:      {starting, refused},
	starting:   {launched, done, refused}, // done: it was cancelled
	launched:   {completing, done},        // done: the driver could not start it
	completing: {done},
	done:       {},
	refused:    {},
}

func (p phase) String() string {
	return [...]string{"reserving", "reserved", "asked", "starting", "launched", "completing", "done", "refused"}[p]
}

// onDisk returns the phase as it is on disk.
func (p phase) onDisk() contract.Phase {
	switch p {
	case reserving, reserved, asked:
		return contract.PhaseReserved
	case starting, launched, completing:
		return contract.PhaseStarted
	case done:
		return contract.PhaseDone
	case refused:
	}
	return contract.PhaseRefused
}

// phaseOf returns the phase of an attempt after a restart. The record must not be that of a reservation.
func phaseOf(rec contract.Record) phase {
	switch {
	case rec.Phase == contract.PhaseStarted && rec.Exit != nil:
		return completing
	case rec.Phase == contract.PhaseStarted:
		return launched
	case rec.Phase == contract.PhaseDone:
		return done
	}
	return refused
}
