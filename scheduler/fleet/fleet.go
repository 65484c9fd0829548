// Package fleet is what one scheduler knows of the hosts: what each host has, what is free there, what the scheduler's
// own offers take of that, and which hosts could run a request.
//
// A Host is one host: what it said last, and the claims of offers on it. A Table holds all hosts, so that a search of
// ten thousand hosts takes microseconds. A Request is what a search is for. All of it is lost when the daemon ends, and
// the next message of a host may correct it.
//
// The package knows nothing of the states of jobs, of offers or of the journal. It does not act: callers pass in the
// time, and the scheduler does what follows. A Table and its hosts are for one goroutine.
//
// A claim has the ID of an offer and a rank, but no pointer to a task: so what is left of a host can be asked, and tested,
// without the rest of the scheduler. What a placement reads of a host lies together at the head of its record, and hosts with
// the same devices share one description of them, because most of the cost of a placement is reading memory.
package fleet
