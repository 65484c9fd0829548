// Package worker allocates the GPUs, CPUs and memory of this host to tasks. No other part of the cluster allocates them:
// what other hosts believe to be free is only a hint.
//
// Core is a state machine without goroutines, clocks or I/O. Package loop feeds it events. In each turn the loop first
// writes to disk what Core returns, at once. Then it sends the messages and starts the tasks that Core decided on. Drivers run the
// tasks in processes that outlive the daemon.
//
// The files have an order: no file uses what a later one defines. A test checks this (internal/daemon/rooms_test.go).
// From the bottom up they are: types and bounds; the state of attempts and groups; the parts that change this state;
// the core, which joins the parts. What needs neither attempts nor groups is in packages below: admission, resources,
// health, useraccounts, environment. Package loop runs the core.
package worker
