package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tiny are clusters of 16 machines.
var tiny = size{leaves: 4, hosts: 4, wide: 4, jobs: 20, seeds: 2, requests: 200, groups: 1}

// Each table is made, equal in two runs, and its records break no rule.
func TestEachTableIsMadeAndKeepsTheRules(t *testing.T) {
	rowsOf := map[string]int{"candidates-placement": 4, "candidates-queueing": 5, "stale": 6, "ways": 5, "silent": 9, "failures": 5}
	var outs [2]bytes.Buffer
	for i := range outs {
		if err := run(t.Context(), options{size: tiny}, &outs[i], io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(outs[0].Bytes(), outs[1].Bytes()) {
		t.Error("the second study printed something else")
	}
	for _, x := range tables {
		_, text, found := strings.Cut(outs[0].String(), x.title+" ("+x.name+")\n\n")
		if found == x.traces {
			t.Errorf("table %s is made: %v, want the opposite", x.name, found)
			continue
		}
		if x.traces {
			continue
		}
		text, _, _ = strings.Cut(text, "\n\n")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if len(lines) != 2+rowsOf[x.name] {
			t.Errorf("table %s has %d lines:\n%s, want %v", x.name, len(lines), text, 2+rowsOf[x.name])
		}
		for _, line := range lines {
			if strings.Count(line, "|") != strings.Count(lines[0], "|") {
				t.Errorf("table %s has a line of another width: %s", x.name, line)
			}
		}
		if x.name == "failures" {
			for _, line := range lines[2:] {
				cells := strings.Split(line, "|")
				if done, all, _ := strings.Cut(strings.TrimSpace(cells[2]), " of "); done != all || !strings.HasSuffix(line, "| 0 | 0 |") {
					t.Errorf("jobs are lost or run twice: %s", line)
				}
			}
			if !strings.Contains(lines[2], "| 0 | 0 | 0 | 0s |") || strings.Contains(lines[3], "| 0 | 0 | 0 |") {
				t.Errorf("the power cut costs nothing, or no fault costs something:\n%s", text)
			}
		}
	}
}

// The document has a place for each table, with its present columns.
func TestDocumentHasEachTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/study.md")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for _, x := range tables {
		made[x.name] = "a table\n"
	}
	if _, err := document(string(text), made); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), options{size: tiny, only: "failures"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	head := strings.Split(out.String(), "\n")[2]
	if !strings.Contains(string(text), head) {
		t.Errorf("run `make study`: docs/study.md has no line %q", head)
	}
}

func TestTablesOfTheDocumentAreReplaced(t *testing.T) {
	name := filepath.Join(t.TempDir(), "study.md")
	text := "before\n<!-- study ways -->\nold\n<!-- end -->\nbetween\n<!-- study failures -->\nold\n<!-- end -->\nafter\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), options{size: tiny, only: "failures", write: name}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	_, table, _ := strings.Cut(out.String(), "\n\n")
	want := "before\n<!-- study ways -->\nold\n<!-- end -->\nbetween\n<!-- study failures -->\n" + strings.TrimSuffix(table, "\n") + "<!-- end -->\nafter\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	for want, o := range map[string]options{
		`no table is called "x"; there are candidates-placement, `: {size: tiny, only: "x"},
		"candidates-traces: MUSTER_TRACES is not set":              {size: tiny, only: "candidates-traces"},
		"candidates-traces: open /nowhere/openb/":                  {size: tiny, only: "candidates-traces", traces: "/nowhere"},
	} {
		if err := run(t.Context(), o, io.Discard, io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := document("no marks", map[string]string{"stale": ""}); err == nil || !strings.Contains(err.Error(), "<!-- study NAME -->") {
		t.Errorf(`got %v, want an error and "<!-- study NAME -->" in it`, err)
	}
}
