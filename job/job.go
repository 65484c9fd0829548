// Package job holds the words that every part of muster shares: what a job
// asks for, the tasks it becomes, the states these may pass through, and the
// records that tell its life.
//
// It stands on the standard library alone, starts no goroutine and does no
// I/O, so that the scheduler, the worker and a simulation mean the same thing
// by the same word.
package job
