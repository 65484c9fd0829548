// Package worker gives the GPUs, CPUs and memory of this host to tasks, and
// only it does: what other hosts believe to be free is a hint.
//
// Core is a state machine without goroutine, clock or I/O. Its Loop feeds it
// events, saves what it wants on disk in one synced write per round, and only
// then sends and starts what it decided. Drivers run the tasks, in processes
// that outlive the daemon.
package worker
