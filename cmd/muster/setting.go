package main

// The type of a setting: its name, the field that holds it, and its text form.

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhq/muster/job"
)

// setting is one setting of a daemon.
type setting struct {
	name  string
	usage string                                       // with the value's name in back quotes; a switch has none
	many  bool                                         // may be given several times
	live  bool                                         // a running daemon applies a new value
	words []string                                     // the only values, if there are few
	set   func(c *daemonConfig, values []string) error // at least one value; exactly one unless many
	get   func(c daemonConfig) string                  // the text form
	take  func(c *daemonConfig, from daemonConfig)     // copies the value
}

// shows returns the setting with another text for its value. That text also says what applies if nothing is set.
func (s setting) shows(get func(daemonConfig) string) setting {
	s.get = get
	return s
}

// reloads marks a setting whose new value a running daemon applies when it reads its file again; see
// internal/daemon/reload.go.
func (s setting) reloads() setting {
	s.live = true
	return s
}

// of returns a setting whose value is one field of the configuration.
func of[T any](name, usage string, in func(*daemonConfig) *T, read func(string) (T, error), write func(T) string) setting {
	return setting{
		name: name, usage: usage,
		set: func(c *daemonConfig, v []string) (err error) {
			*in(c), err = read(v[len(v)-1])
			return err
		},
		get:  func(c daemonConfig) string { return write(*in(&c)) },
		take: func(c *daemonConfig, from daemonConfig) { *in(c) = *in(&from) },
	}
}

// text returns a setting whose value is stored as it is written.
func text(name, usage string, in func(*daemonConfig) *string) setting {
	same := func(v string) string { return v }
	return of(name, usage, in, func(v string) (string, error) { return v, nil }, same)
}

// choice returns a setting whose value is one of several words.
func choice(name, usage string, in func(*daemonConfig) *string, words ...string) setting {
	s := text(name, usage, in)
	s.words = words
	s.set = func(c *daemonConfig, v []string) error {
		for _, w := range words {
			if strings.EqualFold(w, v[len(v)-1]) {
				*in(c) = w
				return nil
			}
		}
		last := len(words) - 1
		return fmt.Errorf("%.40q: want %s or %s", v[len(v)-1], strings.Join(words[:last], ", "), words[last])
	}
	return s
}

// toggle returns a setting that is a switch.
func toggle(name, usage string, in func(*daemonConfig) *bool) setting {
	return of(name, usage, in, func(v string) (bool, error) {
		on, err := strconv.ParseBool(v)
		if err != nil {
			err = fmt.Errorf("%.40q: want true or false", v)
		}
		return on, err
	}, strconv.FormatBool)
}

// count returns a setting whose value is a number from 0 on.
func count(name, usage string, in func(*daemonConfig) *int) setting {
	return of(name, usage, in, func(v string) (n int, err error) {
		if err = number(v, &n); err == nil && n < 0 {
			err = fmt.Errorf("%d: must be at least 0", n)
		}
		return n, err
	}, strconv.Itoa)
}

// sized returns a setting whose value is a number of bytes with its unit.
func sized(name, usage string, in func(*daemonConfig) *job.Size) setting {
	return of(name, usage, in, func(v string) (n job.Size, err error) { return n, n.UnmarshalText([]byte(v)) }, job.Size.String)
}

// lasting returns a setting whose value is a duration.
func lasting(name, usage string, in func(*daemonConfig) *job.Duration) setting {
	return of(name, usage, in, func(v string) (d job.Duration, err error) { return d, d.UnmarshalText([]byte(v)) }, job.Duration.String)
}

// texts returns a setting whose value is a list of words; check, if not nil, refuses a word.
func texts(name, usage string, in func(*daemonConfig) *[]string, check func(string) error) setting {
	return setting{
		name: name, usage: usage, many: true,
		set: func(c *daemonConfig, v []string) error {
			for _, word := range v {
				if check == nil {
					continue
				}
				if err := check(word); err != nil {
					return err
				}
			}
			*in(c) = v
			return nil
		},
		get:  func(c daemonConfig) string { return strings.Join(*in(&c), " ") },
		take: func(c *daemonConfig, from daemonConfig) { *in(c) = *in(&from) },
	}
}

// pairs returns a setting whose value is a list of K=V, in a file also a map; check refuses a pair.
func pairs(name, usage string, in func(*daemonConfig) *map[string]string, check func(k, v string) error) setting {
	return setting{
		name: name, usage: usage, many: true,
		set: func(c *daemonConfig, values []string) error {
			all := map[string]string{}
			for _, text := range values {
				k, v, ok := strings.Cut(text, "=")
				if !ok {
					return fmt.Errorf("%.60q: want K=V", text)
				}
				if err := check(k, v); err != nil {
					return err
				}
				all[k] = v
			}
			*in(c) = all
			return nil
		},
		get:  func(c daemonConfig) string { return labels(*in(&c), " ") },
		take: func(c *daemonConfig, from daemonConfig) { *in(c) = *in(&from) },
	}
}

// toggle reports whether a setting is a switch.
func (s setting) toggle() bool { return !strings.Contains(s.usage, "`") }

// env returns the environment variable of a setting.
func (s setting) env() string {
	return "MUSTER_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}
