//go:build embedrunner

package main

import _ "embed"

// runnerProgram is the command muster-runner, which make build compiles first.
//
//go:embed runner.bin
var runnerProgram []byte
