//go:build !embedrunner

package main

// runnerProgram is not at hand: what plain go build makes runs its runner by
// the hidden verb, which does the same in more memory.
var runnerProgram []byte
