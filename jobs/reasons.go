package jobs

// The words of the reasons that records set.

// Those of all tasks.
const (
	ReasonHeld      = "Held"
	ReasonRequeued  = "Requeued"
	ReasonCancelled = "Cancelled"
	ReasonLost      = "NodeLost"
	ReasonExit      = "Exit"
)

// Those of members of a gang.
const (
	ReasonNotStarted = "NotStarted" // its host did not start it
	// reasonTooMany is the word of a member whose host was lost, until the gang is settled and held.
	reasonTooMany = "NodesLost"
)
