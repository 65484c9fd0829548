// Package worker gives the GPUs, CPUs and memory of this host to tasks. Nothing else gives them: what other hosts believe
// to be free is a hint.
//
// Core is a state machine without goroutine, clock or I/O. Its Loop feeds it events, saves in one write per turn what Core
// wants on disk, and only then sends and starts what Core decided. Drivers run the tasks, in processes that outlive the
// daemon.
//
// The files are in layers, and none uses what a higher one defines (node/rooms_test.go has the order): words and bounds;
// what the host has and who holds it (capacity, quota, account, device, health); what is known of offers, attempts and
// groups; the rooms that change them; the core, which joins the rooms; the loop.
package worker
