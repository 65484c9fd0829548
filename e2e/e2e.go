// Package e2e tests the built program as a user runs it: real daemons, real sockets on loopback, real processes. Its
// tests have the build tag e2e and need bin/muster, which `make e2e` builds.
package e2e
