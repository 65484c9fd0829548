package jobs

// The words of the reasons that records set, and how their texts are kept.

import (
	"strings"
	"unique"
)

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

// maxOutcomeReason bounds the reason of an outcome or an act, and that which tasks have because of an act, in bytes.
const maxOutcomeReason = 256

// clip bounds a reason that a job keeps.
func clip(text string) string {
	if len(text) > maxOutcomeReason {
		text = strings.Clone(strings.ToValidUTF8(text[:maxOutcomeReason], ""))
	}
	return text
}

// shared returns the text, in memory that all equal texts share: many tasks have the same reason.
func shared(text string) string {
	if text == "" {
		return ""
	}
	return unique.Make(text).Value()
}
