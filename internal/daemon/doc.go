// Package daemon is the composition of the daemon: it builds every part, joins
// them where one declares an interface and another fills it, runs them and
// stops them.
package daemon
