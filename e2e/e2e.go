// Package e2e drives the built program as a user would: real daemons, real
// sockets on loopback, real processes. Its tests carry the build tag e2e and
// expect bin/muster (`make e2e` builds it).
package e2e
