package screen

import (
	"errors"
	"testing"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	const (
		appCursor = "\x1b[?1h"
		appKeypad = "\x1b="
		kitty     = "\x1b[>1u"
		kittyAll  = "\x1b[>25u" // disambiguate, all keys, their text
	)
	for _, row := range []struct{ mode, name, want string }{
		{"", "esc", "\x1b"},
		{"", "enter", "\r"},
		{"", "tab", "\t"},
		{"", "shift-tab", "\x1b[Z"},
		{"", "backspace", "\x7f"},
		{"", "space", " "},
		{"", "a", "a"},
		{"", "shift-a", "A"},
		{"", "é", "é"},
		{"", "-", "-"},
		{"", "+", "+"},
		{"", "ctrl--", "\x1f"},
		{"", "ctrl-c", "\x03"},
		{"", "Ctrl+C", "\x03"},
		{"", "c-c", "\x03"},
		{"", "ctrl-space", "\x00"},
		{"", "ctrl-[", "\x1b"},
		{"", "ctrl-\\", "\x1c"},
		{"", "ctrl-s", "\x13"},
		{"", "alt-x", "\x1bx"},
		{"", "alt-enter", "\x1b\r"},
		{"", "ctrl-alt-x", "\x1b\x18"},
		{"", "up", "\x1b[A"},
		{"", "left", "\x1b[D"},
		{"", "home", "\x1b[H"},
		{"", "ctrl-right", "\x1b[1;5C"},
		{"", "shift-f5", "\x1b[15;2~"},
		{"", "f1", "\x1bOP"},
		{"", "f5", "\x1b[15~"},
		{"", "f12", "\x1b[24~"},
		{"", "ctrl-f3", "\x1b[1;5R"},
		{"", "pageup", "\x1b[5~"},
		{"", "delete", "\x1b[3~"},
		{"", "kp5", "5"},
		{"", "kp-enter", "\r"},
		{appCursor, "up", "\x1bOA"},
		{appCursor, "end", "\x1bOF"},
		{appCursor, "ctrl-up", "\x1b[1;5A"},
		{appCursor, "pageup", "\x1b[5~"},
		{appCursor + "\x1b[?1l", "up", "\x1b[A"},
		{appKeypad, "kp5", "\x1bOu"},
		{appKeypad, "kp-enter", "\x1bOM"},
		{appKeypad + "\x1b>", "kp5", "5"},
		{kitty, "esc", "\x1b[27u"},
		{kitty, "enter", "\r"},
		{kitty, "ctrl-enter", "\x1b[13;5u"},
		{kitty, "shift-tab", "\x1b[9;2u"},
		{kitty, "ctrl-c", "\x1b[99;5u"},
		{kitty, "ctrl-shift-c", "\x1b[99;6u"},
		{kitty, "alt-x", "\x1b[120;3u"},
		{kitty, "a", "a"},
		{kitty, "A", "A"},
		{kitty, "up", "\x1b[A"},
		{kitty + appCursor, "up", "\x1b[A"},
		{kitty, "f1", "\x1b[P"},
		{kitty, "f3", "\x1b[13~"},
		{kitty, "shift-f3", "\x1b[13;2~"},
		{kitty, "kp5", "\x1b[57404u"},
		{kitty + "\x1b[<u", "esc", "\x1b"},
		{kittyAll, "a", "\x1b[97;;97u"},
		{kittyAll, "A", "\x1b[97;2;65u"},
		{kittyAll, "ctrl-a", "\x1b[97;5u"},
		{kittyAll, "enter", "\x1b[13u"},
	} {
		s := New(DefaultSize)
		write(s, row.mode)
		got, err := s.Keys(row.name)
		if string(got) != row.want || err != nil {
			t.Errorf("Keys(%q) after %q = %q, %v; want %q", row.name, row.mode, got, err, row.want)
		}
	}
}

func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "nokey", "ctrl-", "ctrl-nokey", "hyper-x", "f99", "\x1b", "ab", "-x", "\xff"} {
		got, err := New(DefaultSize).Keys("a", name)
		var unknown *KeyError
		if !errors.As(err, &unknown) || unknown.Name != name || got != nil {
			t.Errorf("Keys(a, %q) = %q, %v; want a KeyError", name, got, err)
		}
	}
}

func TestTypeAndPaste(t *testing.T) {
	t.Parallel()
	s := New(DefaultSize)
	if got := string(s.Type("ab\n")); got != "ab\r" {
		t.Errorf("Type() = %q; want ab and a carriage return", got)
	}
	if got := string(s.Paste("a\nb")); got != "a\rb" {
		t.Errorf("Paste() = %q; want a, carriage return, b", got)
	}
	write(s, "\x1b[?2004h")
	if got, want := string(s.Paste("a\nb\x1b[201~; rm")), "\x1b[200~a\nb[201~; rm\x1b[201~"; got != want {
		t.Errorf("Paste() = %q; want %q", got, want)
	}
	write(s, "\x1b[>8u")
	if got := string(s.Type("a\n")); got != "\x1b[97u\x1b[13u" {
		t.Errorf("Type() = %q; want sequences", got)
	}
}
