package worker

// Bounds that tests fill.
const (
	MaxQueued = maxQueued
	MaxAge    = maxAge
)
