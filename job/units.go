package job

// Sizes and durations. Their text form always has a unit. The libraries that were tried do not do that: go-humanize takes
// a bare number, go-units reads GB as GiB (RAMInBytes) or GiB as GB (FromHumanSize), and time.ParseDuration has no days.

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. Its text form has a unit: 8GiB, 500MB, 12B.
type Size int64

// Duration is a span of time. Its text form has a unit: 90m, 1h30m, 2d.
type Duration time.Duration

var errNoUnit = errors.New("a number needs a unit")

// sizeUnits lists the units. Of those of the same size String uses the first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"EiB", 1 << 60},
	{"PiB", 1 << 50},
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"EB", 1e18},
	{"PB", 1e15},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
	{"E", 1 << 60},
	{"P", 1 << 50},
	{"T", 1 << 40},
	{"G", 1 << 30},
	{"M", 1 << 20},
	{"K", 1 << 10},
}

// ParseSize parses a size such as 8GiB, 1.5GB or 500M. A bare letter means powers of 1024, as in Slurm and Docker.
func ParseSize(text string) (Size, error) {
	s := strings.TrimSpace(text)
	i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if i < 0 && s != "" {
		return 0, fmt.Errorf("size %.40q: %w, such as %.20sGiB or %.20sMB", text, errNoUnit, s, s)
	}
	if i > 0 {
		n, err := strconv.ParseFloat(s[:i], 64)
		for _, u := range sizeUnits {
			if err == nil && equalFold(strings.TrimSpace(s[i:]), u.name) {
				if bytes := n * float64(u.bytes); bytes < math.MaxInt64 {
					return Size(bytes), nil
				}
				return 0, fmt.Errorf("size %.40q: too large", text)
			}
		}
	}
	return 0, fmt.Errorf("size %.40q: want a number and a unit, such as 8GiB or 500MB", text)
}

// String returns the size for people: exact in a number of up to four digits, else rounded to a tenth of a unit.
func (s Size) String() string {
	exact := s.exact()
	digits := strings.TrimRight(exact, "kKMGTPEiB")
	if len(strings.TrimPrefix(digits, "-")) <= 4 {
		return exact
	}
	for _, u := range sizeUnits[:6] { // the binary ones
		if n := float64(s) / float64(u.bytes); n >= 1 || n <= -1 {
			return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + u.name
		}
	}
	return exact
}

// exact returns the size in the unit that divides it evenly and gives the smallest number.
func (s Size) exact() string {
	text, least := "0B", int64(math.MaxInt64)
	for _, u := range sizeUnits {
		if n := int64(s); n != 0 && n%u.bytes == 0 && max(n, -n)/u.bytes < least {
			least = max(n, -n) / u.bytes
			text = strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return text
}

// MarshalText returns the exact text that UnmarshalText parses.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.exact()), nil }

// UnmarshalText parses a size with its unit.
func (s *Size) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSize(string(b))
	return err
}

// ParseDuration parses a duration such as 90m, 1h30m, 2d or 1d12h.
func ParseDuration(text string) (Duration, error) {
	s := strings.TrimSpace(text)
	if s != "" && strings.Trim(s, "0123456789.") == "" {
		return 0, fmt.Errorf("duration %.40q: %w, such as %.20ss, %.20sm or %.20sh", text, errNoUnit, s, s, s)
	}
	var days float64
	if i := strings.IndexByte(s, 'd'); i > 0 {
		n, err := strconv.ParseFloat(s[:i], 64)
		if err != nil || n < 0 {
			return 0, badDuration(text)
		}
		if n > maxDays {
			return 0, longDuration(text)
		}
		days, s = n, s[i+1:]
	}
	var rest time.Duration
	if s != "" || days == 0 {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, badDuration(text)
		}
		rest = d
	}
	total := days*24*float64(time.Hour) + float64(rest)
	if total > maxDays*24*float64(time.Hour) {
		return 0, longDuration(text)
	}
	return Duration(time.Duration(days*24*float64(time.Hour)) + rest), nil
}

const maxDays = 36_500

func longDuration(text string) error {
	return fmt.Errorf("duration %.40q: at most %dd", text, maxDays)
}

func badDuration(text string) error {
	return fmt.Errorf("duration %.40q: want a number and a unit, such as 90m, 1h30m or 2d", text)
}

// D converts to a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String returns the format of time.Duration with days, and without what is zero at the end: 2d, 1h30m, 1d10s.
func (d Duration) String() string {
	const day = 24 * time.Hour
	whole, rest := time.Duration(d)/day, time.Duration(d)%day
	text := rest.String()
	for _, none := range []struct{ end, short string }{{"m0s", "m"}, {"h0m", "h"}} {
		if before, zero := strings.CutSuffix(text, none.end); zero {
			text = before + none.short
		}
	}
	switch {
	case whole <= 0:
		return text
	case rest == 0:
		return fmt.Sprintf("%dd", whole)
	}
	return fmt.Sprintf("%dd%s", whole, text)
}

// MarshalText returns the text that UnmarshalText parses.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses a duration with its unit.
func (d *Duration) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDuration(string(b))
	return err
}

func equalFold(a, b string) bool { return strings.EqualFold(a, b) }
