//go:build !embedrunner

package main

// runnerProgram is empty in a plain go build. The daemon then starts its runner by the hidden verb, which does the
// same but uses more memory.
var runnerProgram []byte
