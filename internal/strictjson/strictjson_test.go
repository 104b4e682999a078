package strictjson

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want string // the error; "" is none
	}{
		{`{}`, ""},
		{`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, ""},
		{`{"a":"a","b":"a"}`, ""},
		{`"\ud83d\ude00 \\ud800 \u00e9"`, ""},
		{`[[[]]]`, ""},
		{`"[[[[[[["`, ""},
		{`"\"[[[[[["`, ""},
		{"\"\xff\"", "it is not UTF-8"},
		{`"\ud800"`, "it has half of a surrogate pair"},
		{`"\udc00"`, "it has half of a surrogate pair"},
		{`"\ud800\n"`, "it has half of a surrogate pair"},
		{`"\ud800\ud800"`, "it has half of a surrogate pair"},
		{`[[[[1]]]]`, "it is nested deeper than 3 levels"},
		{`[[[[`, "it is nested deeper than 3 levels"},
		{``, "it is not JSON"},
		{`{} {}`, "it is not JSON"},
		{`{"a":}`, "it is not JSON"},
		{`{"a":1,"a":2}`, `"a" is given twice`},
		{`{"a":1,"\u0061":2}`, `"a" is given twice`},
		{`[{"b":{"é":1,"é":2}}]`, `"\u00e9" is given twice`},
		{`{"a":[],"b":0,"a":[]}`, `"a" is given twice`},
		{`{"` + strings.Repeat("x", 80) + `":1,"` + strings.Repeat("x", 80) + `":1}`, `"` + strings.Repeat("x", 64) + `\u2026" is given twice`},
	} {
		got := ""
		if err := Check([]byte(tt.text), 3); err != nil {
			got = err.Error()
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("Check(%q) = %T; want an *Error", tt.text, err)
			}
		}
		if got != tt.want {
			t.Errorf("Check(%q) = %q; want %q", tt.text, got, tt.want)
		}
	}
	if err := Check([]byte(strings.Repeat("[", 100)+strings.Repeat("]", 100)), 0); err != nil {
		t.Errorf("Check() without a bound = %v; want none", err)
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text    string
		want    []Member
		problem Problem
	}{
		{` { "b" : 1 , "a":[ 2 ] } `, []Member{{"b", json.RawMessage("1")}, {"a", json.RawMessage("[ 2 ]")}}, 0},
		{`{}`, nil, 0},
		{`{"a":{"b":1,"b":2}}`, []Member{{"a", json.RawMessage(`{"b":1,"b":2}`)}}, 0},
		{`{"a":1,"a":2}`, nil, Duplicate},
		{`[]`, nil, NotObject},
		{`null`, nil, NotObject},
		{`{`, nil, NotJSON},
		{`{}{}`, nil, NotJSON},
		{``, nil, NotJSON},
		{"{\"a\":\"\xc3\"}", nil, NotUTF8},
		{`{"a":"\udfff"}`, nil, HalfPair},
		{`{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, nil, NotJSON},
	} {
		got, err := Members([]byte(tt.text))
		var problem Problem
		if e, ok := errors.AsType[*Error](err); ok {
			problem = e.Problem
		}
		if !reflect.DeepEqual(got, tt.want) || problem != tt.problem {
			t.Errorf("Members(%.40q) = %q, %v; want %q, problem %d", tt.text, got, err, tt.want, tt.problem)
		}
	}
}

// What is accepted is valid JSON in UTF-8 which encoding/json reads and writes without a
// change of meaning.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}]}`, `"\ud800"`, `{"a":1,"a":2}`, `[[[[`, `"\\ud800"`, "\"\xff\""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Check(data, 64)
		members, objectErr := Members(data)
		if err != nil {
			return
		}
		var v any
		if !utf8.Valid(data) || json.Unmarshal(data, &v) != nil {
			t.Fatalf("Check(%q) = nil", data)
		}
		object, is := v.(map[string]any)
		if is != (objectErr == nil) || len(members) != len(object) {
			t.Fatalf("Members(%q) = %d, %v; want %d", data, len(members), objectErr, len(object))
		}
		again, err := json.Marshal(v)
		var same any
		if err != nil || json.Unmarshal(again, &same) != nil || !reflect.DeepEqual(v, same) {
			t.Fatalf("%q reads as %v, and then as %v", data, v, same)
		}
	})
}
