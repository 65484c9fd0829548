package scheduler

// The phases of a task's newest attempt, and the legal moves between them. A move that is not in the table is made all the
// same and reported as a defect: a daemon that ends over a wrong phase helps no task. A test compares the moves that the
// stories make with the table.

import "slices"

// phase is how far the newest attempt of a task has come, as far as this daemon knows. The Assign record is proposed
// while hosts have the offers, so a host may commit before or after the record is in the journal. The Start needs both
// (R1).
//
// What the host has said or was told in this session is not a phase: it ends with the session, whatever the phase is.
// Two numbers of sessions stand for it, task.heard and task.cancelled.
type phase int

const (
	idle phase = iota // there is no attempt: the task waits, is held or has ended

	// The task has a dispatch.
	offering   // hosts have its offers; none has committed, and no Assign is under way
	proposing  // its Assign is under way; no host has committed
	held       // a host has committed; no Assign is under way: the journal refused it, or it is about to be proposed
	confirming // a host has committed, and the Assign is under way
	recorded   // the Assign is in the journal; the Start waits for a host to commit. Of a gang all ranks pass this phase

	// The task has no dispatch any more.
	withdrawn // its offers were taken back while its Assign was under way: the journal may still take it

	// The attempt is assigned and may be running.
	unknown    // nothing more is known: this daemon has sent no Start, and the host has reported no state (R8)
	startSent  // the Start was sent; the host has reported no state
	running    // the host has reported that the task starts or runs
	completing // the host has reported that the processes are gone, or how the task ended

	// The attempt is given up: its Unassign is proposed until it is in the journal. It is never started or kept again
	// (R7).
	dropped // given up while nothing more was known than that it was assigned
	givenUp // given up after its Start was sent
)

// moves are the legal moves. A host that has committed may lose its lease and commit again later. A host that reports
// the events of an attempt again begins with the oldest. An assigned attempt becomes idle when its end is in the
// journal.
var moves = map[phase][]phase{
	idle:       {offering, unknown, recorded},
	offering:   {idle, proposing, held},
	proposing:  {offering, confirming, recorded, withdrawn},
	held:       {idle, offering, confirming},
	confirming: {proposing, held, recorded, withdrawn},
	recorded:   {unknown, startSent},
	withdrawn:  {idle, unknown},
	unknown:    {idle, running, completing, dropped},
	startSent:  {idle, running, completing, givenUp},
	running:    {idle, completing, givenUp},
	completing: {idle, running, givenUp},
	dropped:    {idle},
	givenUp:    {idle},
}

// unproposed has the phases in which an Assign is under way, each with the phase that follows if the journal refuses
// it.
var unproposed = map[phase]phase{proposing: offering, confirming: held, withdrawn: idle}

func (p phase) String() string {
	return [...]string{
		"idle", "offering", "proposing", "held", "confirming", "recorded", "withdrawn",
		"unknown", "start sent", "running", "completing", "dropped", "given up",
	}[p]
}

// canMove reports whether the move is legal.
func (p phase) canMove(to phase) bool { return slices.Contains(moves[p], to) }

// proposed reports whether an Assign of the attempt is under way.
func (p phase) proposed() bool {
	_, under := unproposed[p]
	return under
}

// watched reports whether the attempt may be running and is not given up.
func (p phase) watched() bool { return p >= unknown && p <= completing }

// started reports whether a Start of the attempt was sent, by this owner or by an earlier one.
func (p phase) started() bool { return p >= startSent && p <= completing || p == givenUp }

// over reports whether the attempt is given up (R7).
func (p phase) over() bool { return p == dropped || p == givenUp }
