// Package p2p is the only entry for bytes from strangers. It holds the libp2p host of a daemon, the daemon's
// identity, its cluster, and the gate that admits only members.
//
// # Identity
//
// A daemon is an Ed25519 key; its libp2p peer ID names it. A cluster is another Ed25519 key pair, made by the first
// daemon that starts with nothing to join; the cluster ID is the hash of its public key. A [Credential] says that
// peer P may be R (worker, scheduler, inviter) until time T. It is signed by the cluster key, or by a daemon whose
// own credential has the role inviter; then the credential includes the signer's credential, in a chain of at most
// [MaxChain]. Nobody can give a role that it lacks. Inviters keep each other current by endorsements;
// see endorsement.go and docs/adr, ADR 121. So the cluster survives its first daemon.
//
// All links of a chain must be current. A link says who let its peer in; renewals do not change that. The cluster key can
// revoke any peer, a member itself and those that it let in. What the revocations mean for a credential is decided when
// it is shown; see revokedverdict.go and docs/adr, ADR 117.
//
// # The gate
//
// The gate is inside the transports, below the swarm. A new connection, dialled or accepted, over TCP or QUIC, is
// passed to the rest of libp2p only after both sides have shown a valid credential. So identify, ping, the DHT,
// gossip and our own protocols never see a stranger, and an open connection means an admitted peer. On a connection
// that is not yet admitted, the accepting side serves two protocols, one stream at a time:
//
//   - /muster/hello/1: the dialer sends Hello, the listener answers HelloReply;
//     code 0 admits, any other code says why not. Members repeat it on an open
//     connection to show a renewed credential and to compare revocations.
//   - /muster/join/1: JoinRequest with the secret of a token, answered by
//     JoinReply with a credential or the reason for none. A member that shows
//     its still valid credential instead gets a newer one.
//
// A connection that is not admitted five seconds after it was accepted is closed. Until then it is a stranger, which
// has few places, bytes and streams; see strangers.go and docs/adr, ADR 116.
//
// # Other protocols of this package
//
//   - /muster/revoked/2: the sender writes RevocationList messages until it
//     closes; the receiver stores each new entry, acts on it and passes it on.
//     Number 1 is the same with entries that the version before understands.
//
// A message is a length-delimited protobuf of at most the size in the table in protocols.go. A longer message, or one
// that does not parse, ends the stream with a reset. Protocol IDs end in a number. A change that an old peer would
// misread takes a new number, and both numbers are served for one release.
package p2p
