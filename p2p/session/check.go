package session

// The bounds of every message. The sender and the receiver check the same bounds. Sentences for people are not
// checked here: toWire cleans them and fromWire checks them.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

const (
	maxID       = 128       // bytes of the ID of a device, a store or a driver, and of a reason's word
	maxPeer     = 128       // bytes of a peer ID; one with an Ed25519 key has 52
	maxToken    = 8 << 10   // bytes of a user's credential
	maxGroups   = 1024      // groups of one owner: its own, and those that it takes over
	maxDrivers  = 16        // drivers of a worker; this version has four
	maxLinks    = 3600      // links of all devices of a host: enough for 60 devices that are all linked to each other
	maxGrace    = time.Hour // as in a job file
	maxHold     = time.Hour // Hold of an offer to a member of a gang; workers have a bound of their own
	maxPort     = 1<<16 - 1
	maxPID      = 1 << 22 // PID_MAX_LIMIT of Linux
	maxPath     = 4096    // bytes of a directory's path; PATH_MAX of Linux
	maxSignal   = 64      // the highest signal number of Linux
	wholeDevice = 1000    // thousandths
)

var (
	errRange    = errors.New("a number is out of range")
	errGroup    = errors.New("the job does not belong to that group")
	errMany     = errors.New("a list is too long")
	errID       = errors.New("an id is empty, too long or has characters other than a-z A-Z 0-9 . _ - : /")
	errPath     = errors.New("there are too many directories for containers, or one is too long or not printable")
	errName     = errors.New("a name is too long or not printable")
	errState    = errors.New("not a state of an attempt that was started")
	errExit     = errors.New("a final state needs an exit or the reason of a refusal; other states must not have one")
	errUsage    = fmt.Errorf("what the attempt used is not a report of at most %d bytes", usage.MaxBytes)
	errTail     = fmt.Errorf("the tail of the output is longer than %d bytes", job.TailBytes)
	errForecast = errors.New("a forecast says more than one thing")
	errSame     = errors.New("two devices have the same ID")
	errKind     = errors.New("unknown kind of link")
	errEntry    = errors.New("the line of a task is too long, or not text")
	errShare    = errors.New("a share must be at least 0 and below 1, and excludes whole devices")
)

// check returns an error if a message is out of bounds. It ignores a value that is not a message.
func check(msg any) error {
	switch m := msg.(type) {
	case contract.ToWorker:
		return checkToWorker(m)
	case contract.ToScheduler:
		return checkToScheduler(m)
	}
	return nil
}

func checkToWorker(msg contract.ToWorker) error {
	switch m := msg.(type) {
	case contract.Owns:
		return within(len(m.Groups), maxGroups)
	case contract.Offer:
		return checkOffer(m)
	case contract.Start:
		return checkStart(m)
	case contract.Query:
		return errors.Join(checkAttempt(m.Attempt, m.Group), optionalID(m.Store))
	case contract.Signal:
		if m.Number < 1 || m.Number > maxSignal {
			return errRange
		}
		return checkAttempt(m.Attempt, m.Group)
	case contract.Cancel:
		if m.Grace < 0 || m.Grace > maxGrace {
			return errRange
		}
		return checkAttempt(m.Attempt, m.Group)
	case contract.Ack:
		if m.Group == 0 {
			return m.Attempt.Valid()
		}
		return checkAttempt(m.Attempt, m.Group)
	case contract.Renewed:
		if err := within(len(m.Verdicts), contract.MaxLive); err != nil {
			return err
		}
		for _, v := range m.Verdicts {
			if err := checkAttempt(v.Attempt, m.Group); err != nil {
				return err
			}
		}
	}
	return nil // Release has only a number
}

func checkOffer(m contract.Offer) error {
	switch {
	case m.Priority < 0 || m.Priority > job.MaxPriority, m.Wait < 0 || m.Wait > contract.MaxOfferWait, m.Age < 0,
		m.Limit < 0 || m.Limit > contract.MaxLimit,
		m.Level < 0 || m.Level > contract.MaxLevel, m.Work.By < contract.ByAge || m.Work.By > contract.ByRemaining, m.Work.Time < 0 || m.Work.Time > contract.MaxWork,
		m.Work.By == contract.ByAge && (m.Work.Time > 0 || m.Level > 0),
		m.Hold < 0 || m.Hold > maxHold:
		return errRange
	case m.Gang < 0 || m.Gang == 1 || m.Gang > job.MaxNodes, m.Firm && m.Gang == 0:
		return errGang
	case len(m.User) > job.MaxName || !printable(m.User), len(m.Token) > maxToken || !printable(m.Token):
		return errName
	}
	if err := errors.Join(job.CheckProject(m.Project), checkNeed(m.Need), optionalID(m.Device)); err != nil {
		return err
	}
	return checkAttempt(m.Attempt, m.Group)
}

func checkNeed(r job.Resources) error {
	switch {
	case r.CPUs < 0 || r.CPUs > job.MaxCPUs, r.Memory < 0, r.GPUs < 0 || r.GPUs > job.MaxGPUs, r.GPUMemory < 0:
		return errRange
	case !(r.GPUShare >= 0 && r.GPUShare < 1), r.GPUShare > 0 && r.GPUs > 0: // written so that NaN is refused
		return errShare
	case len(r.GPUModel) > job.MaxName || !printable(r.GPUModel):
		return errName
	}
	return nil
}

func checkStart(m contract.Start) error {
	if len(m.User) > job.MaxName || !printable(m.User) {
		return errName
	}
	if m.File == nil {
		return errNoFile
	}
	if err := m.File.Validate(); err != nil {
		return err
	}
	e := m.Element
	if e.Index < 0 || e.Index > job.MaxIndex || !e.Array && (e.Index != 0 || e.Entry != "") {
		return errRange
	}
	if len(e.Entry) > job.MaxEntry || !utf8.ValidString(e.Entry) || strings.ContainsRune(e.Entry, 0) {
		return errEntry
	}
	if err := checkGang(m.Gang, e.Rank); err != nil {
		return err
	}
	return checkAttempt(m.Attempt, m.Group)
}

// checkSpecSize bounds the encoded job file.
func checkSpecSize(text []byte) error {
	if len(text) > job.MaxSpecBytes {
		return fmt.Errorf("the job file has %d bytes; at most %d", len(text), job.MaxSpecBytes)
	}
	return nil
}

func checkToScheduler(msg contract.ToScheduler) error {
	switch m := msg.(type) {
	case contract.Hello:
		if err := checkProfile(m.Profile); err != nil {
			return err
		}
		return checkFree(m.Free)
	case contract.Availability:
		if err := errors.Join(checkUsers(m.UnderQuota), checkForecasts(m.Forecasts), checkUsage(m.Usage), checkKept(m.Kept, &m.Free)); err != nil {
			return err
		}
		return checkFree(m.Free)
	case contract.Commit:
		return checkCommit(m)
	case contract.Decline:
		if err := checkID(m.Reason.Word); err != nil {
			return err
		}
		if err := checkFree(m.Free); err != nil {
			return err
		}
		return m.Attempt.Valid()
	case contract.Event:
		return checkEvent(m)
	case contract.Renew:
		if err := within(len(m.Live), contract.MaxLive); err != nil {
			return err
		}
		for _, a := range m.Live {
			if err := checkAttempt(a, m.Group); err != nil {
				return err
			}
		}
		return optionalID(m.Store)
	case contract.Stale:
		return checkPeer(m.Owner)
	}
	return nil
}

func checkCommit(m contract.Commit) error {
	if m.Port < 0 || m.Port > maxPort {
		return errRange
	}
	if m.Address != "" {
		if err := checkAddress(m.Address); err != nil {
			return err
		}
	}
	if err := checkDevices(m.Devices); err != nil {
		return err
	}
	return checkAttempt(m.Attempt, m.Group)
}

func checkUsers(names []string) error {
	for _, n := range names {
		if len(n) > job.MaxName || !printable(n) {
			return errName
		}
	}
	return within(len(names), contract.MaxUnderQuota)
}

func checkEvent(m contract.Event) error {
	ended := m.State.Ended()
	switch {
	case !ended && m.State != job.Starting && m.State != job.Running && m.State != job.Completing && (m.State != "" || m.Refused == ""):
		return errState
	case m.Exit != nil && (!ended || m.Refused != ""), ended && m.Exit == nil && m.Refused == "":
		return errExit
	case m.PID < 0 || m.N == 0 || !inWallClock(m.Began):
		return errRange
	case m.Detail != "" && m.State != job.Starting:
		return errState
	}
	if err := checkDevices(m.Devices); err != nil {
		return err
	}
	if e := m.Exit; e != nil {
		switch {
		case !e.State.Ended():
			return errState
		case e.Code < -1<<31 || e.Code >= 1<<31 || e.Signal < 0 || e.Signal > maxSignal:
			return errRange
		case len(e.Tail) > job.TailBytes:
			return errTail
		case e.Usage != "" && !isReport(e.Usage):
			return errUsage
		case !inWallClock(e.Began) || !inWallClock(e.Ended):
			return errRange
		}
	}
	return checkAttempt(m.Attempt, m.Group)
}

// isReport reports whether b is a valid report of what an attempt used.
func isReport(b string) bool {
	_, err := usage.Decode([]byte(b))
	return err == nil
}

// inWallClock reports whether the time fits into 64 bits of nanoseconds.
func inWallClock(t time.Time) bool {
	return t.IsZero() || (t.Year() > 1678 && t.Year() < 2262)
}

func checkProfile(p contract.Profile) error {
	switch {
	case len(p.Name) > job.MaxName || !printable(p.Name), len(p.Version) > job.MaxName || !printable(p.Version):
		return errName
	case p.CPUs < 0 || p.CPUs > job.MaxCPUs || p.Memory < 0 || p.Disk < 0:
		return errRange
	case len(p.Labels) > contract.MaxLabels || len(p.GPUs) > contract.MaxGPUs || len(p.Drivers) > maxDrivers:
		return errMany
	case len(p.Mounts) > contract.MaxMounts || slices.ContainsFunc(p.Mounts, func(m string) bool { return len(m) > maxPath || !printable(m) }):
		return errPath
	case p.Peer == "":
		return errID
	case len(p.OnlyUser) > job.MaxName || !printable(p.OnlyUser):
		return errName
	}
	for k, v := range p.Labels {
		if err := job.CheckLabel(k, v); err != nil {
			return err
		}
	}
	for _, d := range p.Drivers {
		if err := checkID(d); err != nil {
			return err
		}
	}
	if err := errors.Join(checkPeer(p.Peer), optionalID(p.Store), optionalID(p.Arch), optionalID(p.OS), checkLimits(p.Limits), optionalID(p.Fencing.Boot)); err != nil {
		return err
	}
	return checkGPUs(p.GPUs)
}

func checkGPUs(devices []gpu.Device) error {
	seen, links := make(map[string]bool, len(devices)), 0
	for _, d := range devices {
		if seen[d.UUID] {
			return errSame
		}
		seen[d.UUID] = true
		links += len(d.Links)
		switch {
		case links > maxLinks:
			return errMany
		case d.Memory < 0 || d.Index < 0 || d.Index >= 1<<16 || d.NUMA < -1 || d.NUMA >= 1<<16:
			return errRange
		}
		for _, name := range []string{d.Model, d.Class, d.Compute, d.Driver, d.PCI} {
			if len(name) > job.MaxName || !printable(name) {
				return errName
			}
		}
		if err := errors.Join(checkID(d.UUID), optionalID(d.Parent), checkLinks(d.Links)); err != nil {
			return err
		}
	}
	return nil
}

func checkLinks(links []gpu.Link) error {
	kinds := []gpu.LinkKind{gpu.LinkNVLink, gpu.LinkBoard, gpu.LinkSwitch, gpu.LinkBridge, gpu.LinkNUMA, gpu.LinkSystem}
	for _, l := range links {
		if !slices.Contains(kinds, l.Kind) {
			return errKind
		}
		if l.NVLinks < 0 || l.NVLinks >= 1<<16 {
			return errRange
		}
		if err := checkID(l.To); err != nil {
			return err
		}
	}
	return nil
}

func checkDevices(uuids []string) error {
	if err := within(len(uuids), contract.MaxGPUs); err != nil {
		return err
	}
	for _, u := range uuids {
		if err := checkID(u); err != nil {
			return err
		}
	}
	return nil
}

// checkAttempt also checks that the job belongs to the group: an owner's epoch applies only to the jobs of its own
// group (R2).
func checkAttempt(a job.Attempt, g job.Group) error {
	if err := a.Valid(); err != nil {
		return err
	}
	if a.Job.Group() != g {
		return errGroup
	}
	return nil
}

func checkPeer(p job.Peer) error {
	if len(p) > maxPeer {
		return errID
	}
	return optionalID(string(p))
}

func optionalID(s string) error {
	if s == "" {
		return nil
	}
	return checkID(s)
}

// checkID accepts only the characters that are safe in a label and in an environment variable that lists devices.
func checkID(s string) error {
	if s == "" || len(s) > maxID {
		return errID
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > ':') && c != '.' && c != '_' && c != '-' && c != '/' {
			return errID
		}
	}
	return nil
}

func within(n, most int) error {
	if n > most {
		return errMany
	}
	return nil
}
