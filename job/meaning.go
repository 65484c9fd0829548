package job

// What the states and the reasons mean, in one sentence each: for the manual and for the description of the HTTP API.

// Meaning is a word that users see, and what it says.
type Meaning struct{ Word, Text string }

var meanings = map[State]string{
	Pending:     "It waits for its start. The reason says for what.",
	Held:        "It waits for `muster release`: a person holds it, or it has lost several nodes.",
	Reserved:    "A node has reserved what it needs, and has not started it yet. Members of a gang wait so for the others.",
	Starting:    "Its files or its image are brought, and its process is set up. This does not count for the time limit.",
	Running:     "Its process runs.",
	Unreachable: "Its node does not answer, and may still run it. It is not run elsewhere before that is out of the question.",
	Completing:  "Its process has ended. Its output is completed, and its GPUs are cleared.",
	Succeeded:   "Its exit code was 0.",
	Failed:      "Its exit code was another one, a signal ended it, or it could not be started.",
	Cancelled:   "A person ended it.",
	Timeout:     "Its time limit ended it.",
	OutOfMemory: "It needed more memory than it had asked for.",
	NodeFail:    "Its node was lost, and it was not to run again.",
	Preempted:   "It had to make room, and was not to run again.",
}

// Meaning returns what the state says of a task.
func (s State) Meaning() string { return meanings[s] }

// Reasons returns all words of reasons: first those of tasks that wait.
func Reasons() []Meaning {
	return []Meaning{
		{ReasonResources, "Nodes that could run it have not enough free, or only those have on which it has failed. `muster why` says what is missing."},
		{ReasonPriority, "Others go first: of a higher priority, of users who have used less, or older ones. A node may keep what is free for one of them."},
		{ReasonDependency, "Another job has not started or ended yet."},
		{ReasonDependencyNeverSatisfied, "Another job has ended so that the dependency can never be met."},
		{ReasonBeginTime, "Its time of `--begin` has not come."},
		{ReasonArrayThrottle, "As many tasks of its array are active as `%N` allows."},
		{ReasonQuota, "Its user holds as much as the limits of the nodes allow."},
		{ReasonNodesDraining, "The nodes that could run it take no new tasks."},
		{ReasonGPUUnhealthy, "The GPUs that it could have are not healthy, or in quarantine."},
		{ReasonGangWaiting, "Some nodes of a gang have reserved their part; others have no room yet."},
		{ReasonNoMatch, "No node of the cluster could ever run it."},
		{ReasonNoPeers, "No other node is known or answers."},
		{ReasonBackoff, "Its last attempt failed or was declined; it pauses before the next one."},
		{ReasonStaging, "Its files are being sent."},
		{ReasonNodeSilent, "Its node does not answer, and may still run it."},
		{ReasonHeld, "A person holds it."},
		{ReasonNodeLost, "Its node was lost while it ran. A task that has lost several nodes is held."},
		{ReasonNodesLost, "A member of a gang that has lost several nodes. The gang is held when its other members have ended."},
		{ReasonRequeued, "A person had it run again."},
		{ReasonCancelled, "A person ended it."},
		{ReasonExit, "Its last attempt has failed, and it runs again."},
		{ReasonGangEnded, "Another member of its gang has ended, which the detail names."},
		{ReasonNotStarted, "Its node did not start it, and so its gang did not run."},
	}
}
