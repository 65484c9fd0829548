// Package p2p is the only entry for bytes from strangers. It holds the libp2p host of a daemon, the daemon's
// identity, its cluster, and the gate that admits only members.
//
// # Identity
//
// A daemon is an Ed25519 key; its libp2p peer ID names it. A cluster is another Ed25519 key pair, made by the first
// daemon that starts with nothing to join; the cluster ID is the hash of its public key. A [Credential] says that
// peer P may be R (worker, scheduler, inviter) until time T. It is signed by the cluster key, or by a daemon whose
// own credential has the role inviter; then the credential includes the signer's credential, in a chain of at most
// [MaxChain]. Nobody can give a role that it lacks. So the cluster survives the loss of its first daemon.
//
// T limits only the membership of the peer itself, and renewal moves it forward long before it is reached. The right
// to sign for others does not end with T, because the cluster would otherwise end with its founder. It ends with a
// revocation.
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
// A connection that is not admitted after five seconds is closed.
//
// # Other protocols of this package
//
//   - /muster/revoked/1: the sender writes RevocationList messages until it
//     closes; the receiver stores each new entry, acts on it and passes it on.
//
// A message is a length-delimited protobuf of at most the size in the table in protocols.go. A longer message, or one
// that does not parse, ends the stream with a reset. Protocol IDs end in a number. A change that an old peer would
// misread takes a new number, and both numbers are served for one release.
package p2p
