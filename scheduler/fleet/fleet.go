// Package fleet is what one scheduler believes of the hosts: what each has, what is free there, what the scheduler's
// own offers take of that, and which hosts a request could go to.
//
// Host is one host: its word, and the claims that offers have on it. Table holds the hosts so that a search over ten
// thousand of them costs microseconds. Request is what a search looks for. All of it is soft: it is forgotten with
// the daemon, and a host's next word may correct it.
//
// Nothing here knows of jobs' states, of offers under way or of the journal, and nothing here acts: times are given,
// and what follows is the scheduler's to do. A Table and its hosts are for one goroutine.
//
// See docs/adr, ADR 73.
package fleet
