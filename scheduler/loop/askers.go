package loop

import (
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// Askers: requests and looks wait in one line for each asker, and askers take turns. See docs/adr, ADR 122.

// mail is an event for the core, or a function to run on it. It is a call if somebody waits for the answer.
type mail struct {
	event step.Event
	look  func(*scheduler.Core)
}

// maxCall bounds the calls that wait. One asker alone may have half of them. Calls beyond that get ErrBusy.
const maxCall = 8192

// askers holds the calls that wait. Calls of one asker stay in order.
type askers struct {
	lines map[string]*line
	next  []*line // those with calls, in the order of their turns
	calls int
}

// line has the calls of one asker.
type line struct {
	asker string
	mails []mail
}

// put adds a call. It refuses the call if the asker would then have more waiting calls than there are places left for
// others.
func (as *askers) put(asker string, m mail) bool {
	l := as.lines[asker]
	if l == nil {
		l = &line{asker: asker}
	}
	if len(l.mails)+1 > maxCall-as.calls-1 {
		return false
	}
	if l.mails = append(l.mails, m); len(l.mails) == 1 {
		if as.lines == nil {
			as.lines = map[string]*line{}
		}
		as.lines[asker] = l
		as.next = append(as.next, l)
	}
	as.calls++
	return true
}

// take returns the next call of the asker whose turn it is.
func (as *askers) take() (m mail, there bool) {
	if len(as.next) == 0 {
		return mail{}, false
	}
	l := as.next[0]
	as.next = as.next[1:]
	m, l.mails[0] = l.mails[0], mail{}
	if l.mails = l.mails[1:]; len(l.mails) > 0 {
		as.next = append(as.next, l)
	} else {
		delete(as.lines, l.asker)
	}
	as.calls--
	return m, true
}
