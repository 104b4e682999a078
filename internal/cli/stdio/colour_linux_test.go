package stdio

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// Colours are shown on a terminal alone, unless the user says otherwise.
func TestColours(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		when     Colouring
		env      map[string]string
		terminal bool
		want     bool
	}{
		{ColourAuto, nil, true, true},
		{ColourAuto, nil, false, false},
		{ColourAuto, map[string]string{"NO_COLOR": "1"}, true, false},
		{ColourAuto, map[string]string{"TERM": "dumb"}, true, false},
		{ColourAuto, map[string]string{"CLICOLOR": "0"}, true, false},
		{ColourAuto, map[string]string{"CLICOLOR": "1", "TERM": "xterm"}, true, true},
		{ColourAlways, map[string]string{"NO_COLOR": "1"}, false, true},
		{ColourNever, nil, true, false},
		{"", nil, true, false},
	} {
		var w io.Writer = &bytes.Buffer{}
		if row.terminal {
			w = terminal(t)
		}
		s := New(nil, w, io.Discard, nil)
		if s.Colours(s.Stdout) {
			t.Error("there are colours before it is known whether they are wanted")
		}
		s.SetColours(row.when, func(name string) string { return row.env[name] })
		if got := s.Colours(s.Stdout); got != row.want {
			t.Errorf("%+v: Colours() = %t", row, got)
		}
		want := "x"
		if row.want {
			want = "\x1b[31mx\x1b[m"
		}
		if got := s.Paint(s.Stdout, Red, "x"); got != want {
			t.Errorf("%+v: Paint() = %q; want %q", row, got, want)
		}
	}
}

// The head of a table and what is unusual in it have colours, and columns stay where they are.
func TestTableColours(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := New(nil, &out, io.Discard, noSecrets)
	rows := func(w io.Writer) {
		fmt.Fprintln(w, "öl\trunning\t-\tvi lost")
		fmt.Fprintln(w, "b\tlost\t3\tx")
		fmt.Fprintln(w, "ccccccc\twhatever\t0\ty")
	}
	if err := s.Table("NAME\tSTATE\tEXIT\tLAST COMMAND", rows); err != nil {
		t.Fatal(err)
	}
	if err := s.EndMasked(); err != nil {
		t.Fatal(err)
	}
	plain := "NAME     STATE     EXIT  LAST COMMAND\n" +
		"öl       running   -     vi lost\n" +
		"b        lost      3     x\n" +
		"ccccccc  whatever  0     y\n"
	if out.String() != plain {
		t.Errorf("without colours: %q; want %q", out.String(), plain)
	}
	out.Reset()
	s.SetColours(ColourAlways, nil)
	if err := s.Table("NAME\tSTATE\tEXIT\tLAST COMMAND", rows); err != nil {
		t.Fatal(err)
	}
	if err := s.EndMasked(); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[1mNAME     STATE     EXIT  LAST COMMAND\x1b[m\n" +
		"öl       \x1b[32mrunning\x1b[m   -     vi lost\n" +
		"b        \x1b[31mlost\x1b[m      \x1b[31m3\x1b[m     x\n" +
		"ccccccc  whatever  0     y\n"
	if out.String() != want {
		t.Errorf("with colours: %q; want %q", out.String(), want)
	}
}
