package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/sink"
)

// clean makes a text that is to be printed safe for a terminal, and masks what
// is known of secrets in it: parts of it may be anybody's.
func (a *app) clean(text string) string {
	var b strings.Builder
	masks := a.known()
	t := sink.NewSafeText(&b, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, masks)
	_, _ = t.Write([]byte(masks.Scrub(text)))
	_ = t.Close()
	return b.String()
}

// safe does the same to a text that is part of a line: it stays in it.
func (a *app) safe(text string) string {
	return strings.ReplaceAll(a.clean(text), "\n", " ")
}

// age writes how long ago something was, in its largest unit.
func age(since, now time.Time) string {
	d := max(now.Sub(since), 0)
	switch {
	case since.Unix() <= 0: // made reproducibly: it has no time
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
