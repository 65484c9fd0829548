// Package units writes numbers as people read them, in at most seven characters.
package units

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Span writes a span of seconds, as in 3.25s, 12m05s, 5h32m or 3d04h.
func Span(s float64) string {
	sign := ""
	if s < 0 {
		sign, s = "-", -s
	}
	const days = 100 * 86400
	switch d := time.Duration(math.Round(min(s, days))) * time.Second; {
	case s == 0:
		return "0s"
	case s < 0.000995:
		return sign + strconv.FormatFloat(s*1e6, 'f', 0, 64) + "µs"
	case s < 0.0995:
		return sign + strconv.FormatFloat(s*1000, 'f', 1, 64) + "ms"
	case s < 9.995:
		return sign + strconv.FormatFloat(s, 'f', 2, 64) + "s"
	case s < 99.95:
		return sign + strconv.FormatFloat(s, 'f', 1, 64) + "s"
	case d < time.Hour:
		return sign + fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return sign + fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < days*time.Second:
		return sign + fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	default:
		return sign + fmt.Sprintf("%.0fd", s/86400)
	}
}

// Percent writes a part, as in 81.2%.
func Percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + "%" }

// Count writes a count, as in 12,345 or 1.23M.
func Count[N int | int64](n N) string {
	if n < 1_000_000 && n > -1_000_000 {
		return grouped(int64(n))
	}
	x, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G", "T", "P", "E"} {
		if math.Abs(x) < 999.5 {
			break
		}
		x, unit = x/1000, u
	}
	return Digits(x) + unit
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Digits writes a number in three digits, or more if it is large.
func Digits(x float64) string {
	switch a := math.Abs(x); {
	case a == 0:
		return "0"
	case a < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return grouped(int64(math.Round(x)))
}

// Bytes writes an amount of bytes, as in 23.5GiB.
func Bytes(b float64) string {
	unit := "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if b < 999.5 {
			break
		}
		b, unit = b/1024, u
	}
	if unit == "B" {
		return strconv.FormatFloat(b, 'f', 0, 64) + unit
	}
	return Digits(b) + unit
}
