// Package job defines the basic types of muster: what a job requests, its tasks, their states with the legal moves
// between them, and the records of the journal.
//
// The package uses only the standard library, starts no goroutine and does no I/O.
package job
