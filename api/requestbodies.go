package api

// Documents that clients send, and the headers of the protocol.

// The headers of the protocol.
const (
	headerKey      = "Idempotency-Key"
	headerUser     = "Muster-User"     // the user, as stated by the forwarding daemon
	headerOperator = "Muster-Operator" // "1" if that user may change the jobs of others
	headerCursor   = "Muster-Cursor"   // of a listing of jobs: the cursor of the next page, as in its field next
	headerAttempt  = "Muster-Attempt"  // number of the attempt whose log this is
	headerOffset   = "Muster-Offset"   // offset in the log of the first byte of the body
	headerEnd      = "Muster-End"      // trailer: the offset after the last byte; if it is missing, the body was cut off
	headerNext     = "Muster-Next"     // trailer: output was removed here, and the log goes on at this offset
	headerMeasured = "Muster-Measured" // "true": send measured values of the node in lines of their own
)

// Bounds of texts in a request.
const (
	maxReason = 1024 // characters of a reason
	maxKey    = 128  // characters of an idempotency key
)

// changeRequest is the body of cancel, hold, release and similar requests.
type changeRequest struct {
	Tasks  string `json:"tasks,omitempty" maxLength:"24576" doc:"Only the tasks of the job with these numbers, such as 3 or 0-9,12; empty means all. A gang is changed as a whole."`
	Reason string `json:"reason,omitempty" maxLength:"1024"`
}

// requeueRequest is the body of requeue.
type requeueRequest struct {
	Tasks  string `json:"tasks,omitempty" maxLength:"24576" doc:"Only the tasks of the job with these numbers, such as 3 or 0-9,12; empty means all. A gang is run again as a whole."`
	Reason string `json:"reason,omitempty" maxLength:"1024"`
	Failed bool   `json:"failed,omitempty" doc:"Only tasks that have ended, and not with SUCCEEDED."`
}

// revokeRequest is the body of revoke.
type revokeRequest struct {
	Reason      string `json:"reason,omitempty" maxLength:"256"`
	WithInvited bool   `json:"with_invited,omitempty" doc:"Revoke also those that the member let in, and those that they let in."`
}

// InviteRequest asks for an invitation; zero values mean the daemon's defaults.
type InviteRequest struct {
	TTL   float64  `json:"ttl,omitempty" minimum:"0" maximum:"31622400" doc:"How long the token is valid, in seconds; 0 means one hour."`
	Uses  int      `json:"uses,omitempty" minimum:"0" maximum:"1000" doc:"How many hosts may use the token; 0 means one."`
	Roles []string `json:"roles,omitempty" maxItems:"8" maxLength:"32" doc:"Roles of these hosts: worker, scheduler, inviter. Default: worker and scheduler."`
	// This daemon signs the labels for these hosts.
	Labels map[string]string `json:"labels,omitempty" maxProperties:"8" doc:"Labels that the hosts get with their credential, and cannot give to themselves."`
}

// JoinRequest asks the daemon to join a cluster.
type JoinRequest struct {
	Bootstrap []string `json:"bootstrap" minItems:"1" maxItems:"16" maxLength:"512" doc:"Multiaddrs of members, each with /p2p/ID."`
	Token     string   `json:"token" minLength:"1" maxLength:"4096"`
}
