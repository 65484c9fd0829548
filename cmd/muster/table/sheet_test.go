package table

import (
	"strings"
	"testing"
)

func sheetText(t *testing.T, room int, rows ...[]string) string {
	t.Helper()
	var s Sheet
	for _, row := range rows {
		s.Add(row...)
	}
	var b strings.Builder
	if err := s.Print(&b, room); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSheetWrapsWords(t *testing.T) {
	const long = "n1: has 2 × h100-80gb, none of them A100, and 3 of 8 cpus"
	for _, c := range []struct {
		name string
		room int
		rows [][]string
		want string
	}{
		{"nothing", 80, nil, ""},
		{"no bound without a terminal", 0, [][]string{{"gpus: 2", long}, {"", "x"}}, "gpus: 2  " + long + "\n         x\n"},
		{"wrapped at words", 50, [][]string{{"gpus: 2", long}, {"", "x"}, {"now", "n2"}}, "gpus: 2  n1: has 2 × h100-80gb, none of them A100,\n           and 3 of 8 cpus\n         x\nnow      n2\n"},
		{"as wide as the terminal", 66, [][]string{{"gpus: 2", long}}, "gpus: 2  " + long + "\n"},
		{"one less", 65, [][]string{{"gpus: 2", long}}, "gpus: 2  " + strings.TrimSuffix(long, " cpus") + "\n           cpus\n"},
		{"a long word is not split", 40, [][]string{{"id", strings.Repeat("x", 60)}, {"a", "one two three four five six seven eight nine"}}, "id  " + strings.Repeat("x", 60) + "\na   one two three four five six seven\n      eight nine\n"},
		{"a long label", 50, [][]string{{"constraint: rack=r1 & zone=north & nvlink & more", "met by 1 of 2 nodes and by no other one"}}, "constraint:         met by 1 of 2 nodes and by no\nrack=r1 &             other one\nzone=north &\nnvlink & more\n"},
		{"no room beside", 40, [][]string{{"ATTEMPT", "NODE", "REASON"}, {"1", "a-node-with-a-long-name", "-"}, {"2", "n1", "the node was silent for 61 s, and then it was gone"}}, "ATTEMPT  NODE\n    REASON\n1        a-node-with-a-long-name\n    -\n2        n1\n    the node was silent for 61 s, and\n      then it was gone\n"},
		{"several columns", 52, [][]string{{"TASK", "ENDED", "REASON"}, {"0", "2026-01-02 03:00:05 UTC", "the node was silent for 61s"}}, "TASK  ENDED              REASON\n0     2026-01-02         the node was silent for 61s\n      03:00:05 UTC\n"},
		{"spaces", 36, [][]string{{"e", "  stderr:  two   spaces    more and more"}}, "e    stderr:  two   spaces    more\n     and more\n"},
		{"controls", 80, [][]string{{"a\x1b[2J", "b\nc"}}, "a·[2J  b·c\n"},
		{"wide letters", 16, [][]string{{"日本", "日本語 日本語"}}, "日本\n    日本語\n      日本語\n"},
	} {
		got := sheetText(t, c.room, c.rows...)
		if got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		words := ""
		for _, row := range c.rows {
			words += strings.Join(row, " ") + " "
		}
		for word := range strings.FieldsSeq(Clean(strings.NewReplacer("\n", "·").Replace(words))) {
			if !strings.Contains(got, word) {
				t.Errorf("%s: %q is lost:\n%s", c.name, word, got)
			}
		}
	}
}

// Whatever the width, nothing is lost, no word is split, and a line is longer than the terminal only for a long word.
func FuzzSheet(f *testing.F) {
	f.Add("label", "some words of text", 20)
	f.Add("", "  \x1b[31m two  spaces", 3)
	f.Fuzz(func(t *testing.T, label, text string, room int) {
		room %= 200
		got := sheetText(t, room, []string{label, text}, []string{"x", "y z"})
		var want []string
		longest := leastText
		for _, cell := range []string{label, text} {
			for word := range strings.SplitSeq(Clean(cell), " ") {
				longest = max(longest, Width(word))
			}
		}
		want = append(want, strings.Fields(Clean(label))...)
		want = append(want, strings.Fields(Clean(text))...)
		all := map[string]int{}
		for word := range strings.FieldsSeq(got) {
			all[word]++
		}
		for _, word := range want {
			if all[word]--; all[word] < 0 {
				t.Fatalf("%q is lost in %q", word, got)
			}
		}
		for line := range strings.Lines(got) {
			if room > 0 && Width(strings.TrimSuffix(line, "\n")) > max(room, 2*longest+len(gap)+len(hanging)) {
				t.Errorf("with %d columns: got a line that is too long: %q", room, line)
			}
		}
	})
}
