package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// Each problem has words of its own, and what they repeat of a text is short, printable and
// quoted.
func TestErrorWords(t *testing.T) {
	t.Parallel()
	said := map[string]Problem{}
	for problem := NotUTF8; problem <= Duplicate; problem++ {
		text := (&Error{Problem: problem, Depth: 7, Name: "n"}).Error()
		if other, ok := said[text]; ok || text == "" {
			t.Errorf("problems %d and %d both say %q", problem, other, text)
		}
		said[text] = problem
	}
	for _, name := range []string{"a\x1b[2Jb\n", strings.Repeat("x", 1000), strings.Repeat("漢", 1000), strings.Repeat("\U0010ffff", 99), "\u202e"} {
		for _, err := range []error{&Error{Problem: Duplicate, Name: name}, &UnknownFieldError{Field: name}} {
			got := err.Error()
			if len(got) > 12*maxShown || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("the error about a name of %d bytes is %q", len(name), got)
			}
		}
	}
}

// Names are exact at whatever depth an object is, also behind maps, arrays and pointers.
func TestNamesAnywhere(t *testing.T) {
	t.Parallel()
	type leaf struct {
		X int `json:"x"`
	}
	type tree struct {
		Map   map[string]leaf            `json:"map"`
		Deep  map[string][]map[int]*leaf `json:"deep"`
		Pair  [2]leaf                    `json:"pair"`
		Bytes []byte                     `json:"bytes"`
		Any   any                        `json:"any"`
		Next  *tree                      `json:"next"`
	}
	for text, want := range map[string]string{
		`{"map":{"X":{"x":1},"any name":{"x":2}}}`:  "",
		`{"map":{"k":{"X":1}}}`:                     "map.k.X",
		`{"deep":{"k":[{"1":{"x":1}},{"2":null}]}}`: "",
		`{"deep":{"k":[{},{"2":{"X":1}}]}}`:         "deep.k[1].2.X",
		`{"pair":[{"x":1},{"X":1}]}`:                "pair[1].X",
		`{"bytes":"AAEC","any":{"X":[{"Y":1}]}}`:    "",
		`{"next":{"next":{"map":{"k":{"y":1}}}}}`:   "next.next.map.k.y",
		`{"map":[],"deep":1,"pair":{},"next":"x"}`:  "",  // the decoder says that
		`{"b":1,"c":1,"a":1}`:                       "a", // always the first
		`{"map":{"b":{"X":1},"a":{"Y":1}}}`:         "map.a.Y",
	} {
		for range 10 {
			err := Names(json.RawMessage(text), reflect.TypeFor[tree]())
			got := ""
			if e, ok := errors.AsType[*UnknownFieldError](err); ok {
				got = e.Field
			}
			if got != want {
				t.Errorf("Names(%s) = %v; want field %q", text, err, want)
			}
		}
	}
	var v tree
	if err := Decode([]byte(`{"map":{"k":{"X":1}}}`), &v); err == nil || !strings.Contains(err.Error(), "map.k.X") {
		t.Errorf("Decode() = %v; want the field map.k.X refused", err)
	}
}

// The bound on depth counts what is open, not what was.
func TestDepth(t *testing.T) {
	t.Parallel()
	for depth := 1; depth < 6; depth++ {
		for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`[{"]}":"[[[","\"[":`, "}]"}} {
			levels := strings.Count(brackets[1], "]") + strings.Count(brackets[1], "}")
			text := strings.Repeat(brackets[0], depth) + "1" + strings.Repeat(brackets[1], depth)
			for most := 1; most < 12; most++ {
				err := Check([]byte(text), most)
				e, _ := errors.AsType[*Error](err)
				if deep := depth*levels > most; deep != (e != nil && e.Problem == TooDeep && e.Depth == most) || !deep && err != nil {
					t.Errorf("Check(%s, %d) = %v; want too deep: %t", text, most, err, deep)
				}
			}
		}
	}
	wide := "[" + strings.Repeat("[],", 1000) + "[]]"
	if err := Check([]byte(wide), 2); err != nil {
		t.Errorf("Check(many next to each other) = %v", err)
	}
}

// Two names that are written differently are the same name.
func TestDuplicatesByMeaning(t *testing.T) {
	t.Parallel()
	for text, name := range map[string]string{
		`{"a":1,"\u0061":2}`:               "a",
		`{"":1,"":2}`:                      "",
		`{"/":1,"\/":2}`:                   "/",
		`[0,{"x":{"y":[{"b":1,"b":1}]}}]`:  "b",
		`{"k":{"k":{"k":1}},"j":"k"}`:      "none",
		`{"a":"a","b":["a","a"],"c":null}`: "none",
		`{"a":1,"A":2,"\u00e9":1,"e":2}`:   "none",
	} {
		err := Check([]byte(text), 0)
		e, _ := errors.AsType[*Error](err)
		if got := fmt.Sprint(e != nil && e.Problem == Duplicate && e.Name == name); got != fmt.Sprint(name != "none") || name == "none" && err != nil {
			t.Errorf("Check(%s) = %v; want %q given twice", text, err, name)
		}
	}
}
