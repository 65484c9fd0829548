package osuser

// Questions to the directory services of a host: the command getent asks them, in a process of its own.

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// patience is how long an answer is waited for.
	patience = 5 * time.Second
	// goodFor is how long an answer counts, and badFor how long a service that did not answer a question is not asked it
	// again. That there is no such user is not remembered here.
	goodFor = time.Minute
	badFor  = 10 * time.Second
	// maxAnswers bounds the answers that are kept. Then they are all forgotten.
	maxAnswers = 4096
	// maxAnswer bounds an answer, in bytes: the most groups that a user can have.
	maxAnswer = 1 << 20
)

// errSlow is a directory service that does not answer in time.
var errSlow = errors.New("the directory of users does not answer")

// ask returns the line of a database about a user; "" if there is none.
func (d *directory) ask(database, name string) (string, error) {
	question := database + " " + name
	if a, ok := d.kept.get(question, time.Now()); ok {
		return a.line, a.err
	}
	line, err := d.run(database, name)
	switch {
	case err != nil:
		err = fmt.Errorf("user %s: %w", name, err)
		d.kept.put(question, answer{err: err, until: time.Now().Add(badFor)})
	case line != "":
		d.kept.put(question, answer{line: line, until: time.Now().Add(goodFor)})
	}
	return line, err
}

// run asks once. The exit status of getent is not looked at: a runner waits for all its children, so another goroutine
// may have it. It says no more than the output does: getent prints what it finds, and complains of all else than a name
// that is not there.
func (d *directory) run(database, name string) (string, error) {
	path, err := exec.LookPath(d.getent)
	if err != nil {
		return "", nil //nolint:nilerr // this host can ask nobody, so there is nobody
	}
	out, complaint := &bounded{most: maxAnswer}, &bounded{most: 200}
	cmd := exec.Command(path, database, name) //nolint:noctx,gosec // it ends in time, and the name is an argument
	cmd.Stdout, cmd.Stderr = out, complaint
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("getent %s: %w", database, err)
	}
	var late sync.WaitGroup
	slow := false
	late.Add(1)
	timer := time.AfterFunc(d.patience, func() {
		defer late.Done()
		slow = true
		_ = cmd.Process.Kill() // it may have ended
	})
	_ = cmd.Wait() // see above
	if timer.Stop() {
		late.Done()
	}
	late.Wait()
	text, _, more := strings.Cut(out.String(), "\n")
	switch {
	case slow:
		return "", errSlow
	case text == "" && complaint.Len() > 0:
		return "", fmt.Errorf("getent %s: %s", database, printable(complaint.String()))
	case text != "" && !more:
		return "", fmt.Errorf("getent %s: its answer is incomplete, or longer than %d bytes", database, maxAnswer)
	}
	return text, nil
}

// printable returns text as one line without control characters.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}

// bounded keeps the first bytes of what is written to it.
type bounded struct {
	bytes.Buffer

	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.most-b.Len())])
	return len(p), nil
}

// parseGroups reads an answer of getent initgroups about a user: the name and numbers of groups.
func parseGroups(line, name string) ([]uint32, error) {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != name || len(words) > maxGroups {
		return nil, fmt.Errorf("user %s: getent initgroups answers %.80q", name, line)
	}
	groups := make([]uint32, 0, len(words)-1)
	for _, word := range words[1:] {
		gid, ok := parseID(word)
		if !ok {
			return nil, fmt.Errorf("user %s: getent initgroups answers %.80q", name, line)
		}
		groups = append(groups, gid)
	}
	return groups, nil
}

// answer is what a service has said, or why it has not.
type answer struct {
	line  string
	err   error
	until time.Time
}

// answers are those that still count.
type answers struct {
	mu sync.Mutex
	of map[string]answer // by question; guarded by mu
}

func (a *answers) get(question string, now time.Time) (answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.of[question]
	return found, ok && now.Before(found.until)
}

func (a *answers) put(question string, what answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.of) >= maxAnswers {
		clear(a.of)
	}
	a.of[question] = what
}
