package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// judgeKills counts, and looks for survivors after the run.
func judgeKills(ctx context.Context, s *section, l *lab, all []kill, sessions []*session) {
	time.Sleep(3 * time.Second) // for what would write later
	type key struct{ row, name, end string }
	outcomes := map[string]map[string]int{}
	byRow := map[key]int{}
	killed, survived, grown, again := 0, 0, 0, 0
	var latest time.Duration
	for _, k := range all {
		for _, p := range k.problems {
			s.fail("%s", p)
		}
		if k.ending.name == "" {
			continue
		}
		killed++
		latest = max(latest, k.late)
		again += k.again
		byRow[key{k.adversary.row, k.adversary.name, k.ending.name}]++
		if outcomes[k.ending.name] == nil {
			outcomes[k.ending.name] = map[string]int{}
		}
		outcomes[k.ending.name][k.outcome]++
		if strings.Contains(strings.Join(k.problems, " "), "survive") {
			survived++
		}
		if now := size(k.grown); now != k.size {
			grown++
			s.fail("%s by %s: %s has grown from %d to %d bytes after its end", k.adversary.name, k.ending.name, filepath.Base(k.grown), k.size, now)
		}
	}
	left := 0
	for _, one := range sessions {
		if err := awaitEmpty(one); err != nil {
			left++
			s.fail("%v", err)
		}
		r, err := l.exec(ctx, one.id, "echo works")
		if err != nil || r.Stdout != "works\n" {
			s.fail("session %s after all that: %q, %v", one.id, r.Stdout, err)
		}
	}
	s.count("commands killed", killed, l.sizes.kills)
	s.count("survivors by their mark, when the outcome was reported", survived, 0)
	s.count("files that grew after that", grown, 0)
	s.count("sessions with anything left in their cgroups", left, 0)
	s.tell("commands that the engine could not start in time, and that were tried again", "%d", again)
	s.tell("longest until nothing was left of a command whose client had gone", "%d ms", latest.Milliseconds())
	ends := table{head: []string{"ended by", "commands", "outcomes"}}
	for _, e := range endings {
		n := 0
		for _, c := range outcomes[e.name] {
			n += c
		}
		ends.rows = append(ends.rows, []string{e.name, fmt.Sprint(n), counts(outcomes[e.name])})
	}
	rows := table{head: []string{"row", "what it does", "killed"}}
	for _, a := range adversaries {
		n := 0
		for k, c := range byRow {
			if k.row == a.row && k.name == a.name {
				n += c
			}
		}
		rows.rows = append(rows.rows, []string{a.row, a.name, fmt.Sprint(n)})
	}
	s.tables = append(s.tables, ends, rows)
}

// counts lists what there was how often.
func counts(of map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, of[what]))
	}
	return strings.Join(parts, ", ")
}
