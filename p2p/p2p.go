// Package p2p is the one door for strangers' bytes: the libp2p host of a
// daemon, its identity, the cluster it belongs to, and the gate that lets
// nobody else in.
//
// # Who is who
//
// A daemon is an Ed25519 key; its libp2p peer id is its name to machines. A
// cluster is another Ed25519 key pair, made by the first daemon that starts
// with nothing to join; the hash of its public key is the cluster id. A
// [Credential] says: peer P may be R (worker, scheduler, inviter) until T. It
// is signed by the cluster key, or by a daemon whose own credential has the
// role inviter and carries that credential along, in a chain of at most
// [MaxChain]; nobody can give a role that it lacks. So the loss of the first
// daemon costs nothing.
//
// T bounds only the membership of the peer itself and moves on by itself, long
// before it is reached. The right to sign for others does not end with T (else
// a cluster would end with its founder); it ends with a revocation.
//
// # The gate
//
// It stands inside the transports, under the swarm: a connection that was just
// dialled or accepted, over TCP or QUIC alike, is handed to the rest of libp2p
// only after both sides have shown a valid credential. So identify, ping, the
// DHT, gossip and our own protocols never see a stranger, and an open
// connection means an admitted peer. On a connection that is not yet admitted
// two protocols are served, one stream at a time, and nothing is opened:
//
//   - /muster/hello/1: the dialer sends Hello, the listener answers HelloReply;
//     code 0 admits, any other says why not. Members say it again on an open
//     connection to show a renewed credential and to compare revocations.
//   - /muster/join/1: JoinRequest with the secret of a token, answered by
//     JoinReply with a credential or the reason for none. A member that shows
//     its still valid credential instead gets a newer one.
//
// Five seconds after it came up, a connection that is not admitted is closed.
//
// # Further protocols of this package
//
//   - /muster/revoked/1: the sender writes RevocationList messages until it
//     closes; each new entry is kept, acted on and passed on.
//
// A message is a length-delimited protobuf of at most the size that the table
// in protocols.go gives; a longer one, or one that does not parse, ends the
// stream with a reset. Protocol ids end in a number; a change that an old peer
// would misread takes a new number, and both are served for one release.
package p2p
