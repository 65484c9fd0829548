// Package daemon puts the daemon together: it builds every part, connects each
// interface that a part declares with the part that implements it, runs the
// parts and stops them.
package daemon
