// Package audit keeps the audit log of a daemon: who did what, from where, to what, and with what outcome.
//
// The log is one file of JSON lines, audit.jsonl, that is only appended to. When it is full it becomes audit.jsonl.1,
// and so on; the oldest file is removed. Each actor has an allowance of entries, so that a flood by one actor does not
// push the entries of others out of the files. Beyond the allowance, similar entries are counted, and every few minutes
// written as one entry. Recording never waits for the disk. Entries that cannot be written are counted, and the count
// is written once writing is possible again. See docs/adr, ADR 120.
package audit

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/job"
)

// Entry is one act of somebody, or several similar acts.
type Entry struct {
	// Time is when the act happened; of several, the last. It is set by Record.
	Time time.Time `json:"time"`
	// First is when the first of several happened.
	First   *time.Time `json:"first_time,omitempty" doc:"Of several: when the first happened."`
	Action  Action     `json:"action"`
	Outcome Outcome    `json:"outcome" enum:"ok,refused,failed"`
	Code    string     `json:"code,omitempty" doc:"A stable word for the reason, as in a problem document."`
	Reason  string     `json:"reason,omitempty"`
	User    string     `json:"user,omitempty" doc:"With from=peer this is the word of that daemon."`
	UID     *int       `json:"uid,omitempty"`
	From    Origin     `json:"from" enum:"socket,http,peer,network,daemon"`
	PID     int        `json:"pid,omitempty" doc:"Of the process at the other end of the socket."`
	Address string     `json:"address,omitempty"`
	Peer    job.Peer   `json:"peer,omitempty"`
	// PeerName is what the daemon calls itself.
	PeerName string `json:"peer_name,omitempty" doc:"What that daemon calls itself."`
	Object   string `json:"object,omitempty" doc:"Id of the job, task, attempt, node, peer, group, tree or invitation; of several, the first."`
	// Last is the object of the last of several.
	Last    string            `json:"last_object,omitempty" doc:"Of several: the object of the last."`
	Details map[string]string `json:"details,omitempty"`
	Count   int               `json:"count" doc:"How many are in this entry. More than one: they were too many to be written one by one."`

	// IP is the address of somebody who is not known by any other name.
	IP netip.Addr `json:"-"`
}

// Outcome is how it ended.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // the actor had no right to it
	Failed  Outcome = "failed"
)

// Origin is the way by which a request came.
type Origin string

// The origins.
const (
	Socket  Origin = "socket"  // a process of this host; the kernel names its user
	HTTP    Origin = "http"    // HTTP over TCP
	Peer    Origin = "peer"    // another daemon of the cluster
	Network Origin = "network" // the gate, where hosts ask to join
	Daemon  Origin = "daemon"  // this daemon itself
)

// Action is a kind of act.
type Action string

// The actions.
const (
	Submit   Action = "submit"
	Cancel   Action = "cancel"
	Hold     Action = "hold"
	Release  Action = "release"
	Requeue  Action = "requeue"
	Forget   Action = "forget"
	Schedule Action = "schedule"
	Exec     Action = "exec"
	Input    Action = "input"
	Upload   Action = "upload"

	Logs  Action = "logs"
	Files Action = "files"

	Invite      Action = "invite"
	Join        Action = "join"
	Renew       Action = "renew"
	Revoke      Action = "revoke"
	Restore     Action = "restore"
	Drain       Action = "drain"
	Resume      Action = "resume"
	DeclareDead Action = "declare-dead"
	ForgetClaim Action = "forget-claim"

	Hello        Action = "hello"
	Role         Action = "role"
	Authenticate Action = "authenticate"
	Other        Action = "other"
	Various      Action = "various"
	Lost         Action = "lost"
)

// Actions returns all actions.
func Actions() []Action {
	return []Action{
		Submit, Cancel, Hold, Release, Requeue, Forget, Schedule, Exec, Input, Upload, Logs, Files, Invite, Join, Renew, Revoke, Restore, Drain, Resume,
		DeclareDead, ForgetClaim, Hello, Role, Authenticate, Other, Various, Lost,
	}
}

// class is a group of actions with one allowance.
type class int

const (
	changes  class = iota // of jobs
	steering              // of the cluster
	reads
	refusals // all that was refused or failed
	classCount
)

// actions is the table of all actions.
var actions = map[Action]struct {
	class class
	what  string
}{
	Submit:   {changes, "a job was submitted"},
	Cancel:   {changes, "a job, or tasks of it, were cancelled"},
	Hold:     {changes, "a job was held"},
	Release:  {changes, "a held job was released"},
	Requeue:  {changes, "a job was run again"},
	Forget:   {changes, "the record of an ended job was deleted"},
	Schedule: {changes, "back-offs were ended, and nodes looked for at once"},
	Exec:     {changes, "a command was run in a task"},
	Input:    {changes, "a task got input, or a terminal"},
	Upload:   {changes, "files were uploaded"},

	Logs:  {reads, "output of another user's task was read"},
	Files: {reads, "files of a task were copied"},

	Invite:      {steering, "a token was made with which hosts can join"},
	Join:        {steering, "a host asked to join, or this one joined"},
	Renew:       {steering, "a member asked for a newer credential"},
	Revoke:      {steering, "a member was revoked"},
	Restore:     {steering, "a revocation was taken back"},
	Drain:       {steering, "a node was drained"},
	Resume:      {steering, "a drain was ended"},
	DeclareDead: {steering, "a node was declared dead"},
	ForgetClaim: {steering, "the epoch of a group was forgotten"},

	Hello:        {refusals, "a host was not let in"},
	Role:         {refusals, "a member sent what its roles do not allow"},
	Authenticate: {refusals, "a request had no valid token or identity"},
	Other:        {refusals, "another request was refused"},
	Various:      {refusals, "entries of too many kinds to be told apart"},
	Lost:         {refusals, "entries that could not be written"},
}

// Known reports whether there is such an action.
func (a Action) Known() bool { return actions[a].what != "" }

// What returns a description of the action: a sentence without its period.
func (a Action) What() string { return actions[a].what }

// classOf returns the class whose allowance an entry uses.
func (e *Entry) classOf() class {
	if e.Outcome != OK {
		return refusals
	}
	return actions[e.Action].class
}

// stranger reports whether the actor is unknown: it was refused, or failed, before it had proved who it is.
func (e *Entry) stranger() bool {
	return e.Outcome != OK && (e.From == Network || e.Action == Authenticate)
}

// actor names who did it, for allowances: the user of this host, the holder of the token, or the other daemon. The user
// that another daemon names does not count, because that daemon could name any.
func (e *Entry) actor() string {
	switch {
	case e.stranger():
		return "strangers"
	case e.From == Socket && e.UID != nil:
		return "uid " + strconv.Itoa(*e.UID)
	case e.From == HTTP:
		return "http " + e.User
	case e.Peer != "":
		return "peer " + string(e.Peer)
	}
	return string(e.From)
}

// network returns the network of a stranger: a /24 of IPv4, a /64 of IPv6.
func (e *Entry) network() string {
	ip := e.IP.Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 24
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}

// Bounds of an entry, in bytes of text.
const (
	maxText    = 256
	maxName    = 128
	maxDetails = 8
)

// tidy bounds an entry and escapes what is not printable, because names and reasons come from others.
func (e *Entry) tidy() {
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	e.Count = max(e.Count, 1)
	e.Reason, e.Object, e.Last = Clean(e.Reason, maxText), Clean(e.Object, maxText), Clean(e.Last, maxText)
	e.Code, e.User, e.Address = Clean(e.Code, maxName), Clean(e.User, maxName), Clean(e.Address, maxName)
	e.Peer, e.PeerName = job.Peer(Clean(string(e.Peer), maxName)), Clean(e.PeerName, maxName)
	if len(e.Details) == 0 {
		e.Details = nil
		return
	}
	kept := make(map[string]string, len(e.Details))
	for k, v := range e.Details {
		if len(kept) < maxDetails && v != "" {
			kept[Clean(k, maxName)] = Clean(v, maxText)
		}
	}
	e.Details = kept
}

// Valid reports whether an entry has the form that this package writes. An entry from another daemon may not have it.
func (e *Entry) Valid() bool {
	texts := []string{
		string(e.Action), string(e.Outcome), e.Code, e.Reason, e.User, string(e.From), e.Address, string(e.Peer), e.PeerName, e.Object, e.Last,
	}
	for k, v := range e.Details {
		texts = append(texts, k, v)
	}
	const most = maxText + 16 // the last character may take more than one byte, and a mark follows
	for _, s := range texts {
		if len(s) > most || strings.ContainsFunc(s, func(r rune) bool { return r != '\\' && unprintable(r) }) {
			return false
		}
	}
	return e.Action != "" && !e.Time.IsZero() && e.Count > 0 && e.PID >= 0 && len(e.Details) <= maxDetails
}

// Labels returns labels as a detail of an entry, such as rack=r1,secure=yes.
func Labels(labels map[string]string) string {
	all := make([]string, 0, len(labels))
	for k, v := range labels {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Clean returns the text, cut to about this number of bytes, with printable characters only. Line ends, escape
// sequences of terminals, and backslashes are escaped as in Go.
func Clean(s string, most int) string {
	if len(s) <= most && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		if unprintable(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r) }
