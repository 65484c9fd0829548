package state

// The words of the reasons that records set, and how their texts are kept.

import (
	"strings"
	"unique"

	"github.com/musterhq/muster/job"
)

// The reasons of tasks.
const (
	ReasonHeld      = job.ReasonHeld
	ReasonRequeued  = job.ReasonRequeued
	ReasonCancelled = job.ReasonCancelled
	ReasonLost      = job.ReasonNodeLost
	ReasonExit      = job.ReasonExit
)

// The reasons that only members of a gang have.
const (
	ReasonNotStarted = job.ReasonNotStarted
	reasonTooMany    = job.ReasonNodesLost
)

// maxOutcomeReason bounds, in bytes, the reason of an outcome, of an act, and of tasks that an act has changed.
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
