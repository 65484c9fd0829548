//go:build embedrunner

package main

import _ "embed"

// runnerProgram is the command muster-runner, packed by gzip, which make build compiles first.
//
//go:embed runner.bin.gz
var runnerProgram []byte
