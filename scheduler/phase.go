package scheduler

// The phases of a dispatch, and the legal moves between them.

// phase is how far a dispatch has come. Its Assign goes to the journal while hosts have its offers, so that the two
// answers come in any order. The Start needs both (R1).
type phase int

const (
	offering   phase = iota // hosts have its offers: none has committed, and no Assign is under way
	proposing               // its Assign is under way, no host has committed
	held                    // a host has committed, and no Assign is under way: the journal refused one, or is about to get it
	confirming              // a host has committed, and its Assign is under way
	recorded                // its Assign is in the journal
	started                 // over: its Start was sent
	abandoned               // over: its offers were taken back
)

// moves are the legal moves. A host that has committed may lose its lease and commit again later.
var moves = map[phase][]phase{
	offering:   {proposing, held, abandoned},
	proposing:  {confirming, recorded, abandoned},
	held:       {offering, confirming, abandoned},
	confirming: {proposing, held, recorded, abandoned},
	recorded:   {started, abandoned},
	started:    {},
	abandoned:  {},
}

func (p phase) String() string {
	return [...]string{"offering", "proposing", "held", "confirming", "recorded", "started", "abandoned"}[p]
}
