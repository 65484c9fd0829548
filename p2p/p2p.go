// Package p2p is the only way in for bytes from strangers. It holds the libp2p host of a daemon, the daemon's
// identity, its cluster, and the gate that admits only members.
//
// # Identity
//
// A daemon is identified by an Ed25519 key; its libp2p peer ID is derived from the key. A cluster is identified by
// another Ed25519 key pair, made by the first daemon that starts with nothing to join; the cluster ID is the hash of the
// public key. A [Credential] says that a peer has roles (worker, scheduler, inviter) until a time. It is signed by the
// cluster key, or by a daemon whose own credential has the role inviter. In the second case it includes the signer's
// credential, in a chain of at most [MaxChain]. A daemon cannot give a role that it lacks. Inviters keep each other's
// credentials current by endorsements; see endorsement.go and docs/adr, ADR 121. So the cluster survives its first
// daemon.
//
// All links of a chain must be current. A link says who let its peer in; renewals do not change that. The cluster key can
// revoke any peer. A member can revoke itself and the peers that it let in. What the revocations mean for a credential is
// decided when the credential is shown; see revokedverdict.go and docs/adr, ADR 117.
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
//   - /muster/join/1: the dialer sends JoinRequest with the secret of a token,
//     the listener answers JoinReply with a credential or the reason for none.
//     A member that sends its valid credential instead gets a newer one.
//
// A connection that is not admitted five seconds after it was accepted is closed. Until it is admitted it is a stranger.
// The number of strangers, their bytes and their streams are bounded; see strangers.go and docs/adr, ADR 116.
//
// # Other protocols of this package
//
//   - /muster/revoked/2: the sender writes RevocationList messages and closes
//     the stream; the receiver stores each new entry, acts on it and passes it
//     on. /muster/revoked/1 carries only entries that the previous version
//     understands.
//   - /muster/twin/1: the sender asks with TwinAsk whether another daemon has
//     its key, or asks a daemon to prove that it runs; the receiver answers
//     TwinReply. See twin.go.
//
// A message is a length-delimited protobuf of at most the size in the table in protocols.go. A longer message, or one
// that does not parse, ends the stream with a reset. Protocol IDs end in a number. A change that an old peer would
// misread takes a new number, and both numbers are served for one release.
package p2p
