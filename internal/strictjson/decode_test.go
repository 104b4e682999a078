package strictjson

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	type row struct {
		A int    `json:"a"`
		B string `json:"b"`
	}
	for _, tt := range []struct {
		text string
		want row
		err  string // part of it; "" is none
	}{
		{`{"a":1,"b":"x"}`, row{1, "x"}, ""},
		{" {}\n", row{}, ""},
		{`{"c":1}`, row{}, `unknown field "c"`},
		{`{"B":"x"}`, row{0, "x"}, `unknown field "B"`},
		{`{"a":1,"A":2}`, row{2, ""}, `unknown field "A"`},
		{`{"a":"x"}`, row{}, "cannot unmarshal string"},
		{`{"a":1} {"a":2}`, row{1, ""}, "more than one JSON document"},
		{`{"a":1,"a":2}`, row{}, `"a" is given twice`},
		{`{"b":"` + "\xff" + `"}`, row{}, "not UTF-8"},
		{`{"b":"\ud800"}`, row{}, "half of a surrogate pair"},
		{`{"a":`, row{}, "unexpected EOF"},
		{`{"a":x}`, row{}, "invalid character 'x'"},
	} {
		var got row
		err := Decode([]byte(tt.text), &got)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.HasPrefix(err.Error(), "json:")) {
			t.Errorf("Decode(%q) = %+v, %v; want %+v, %q", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// own reads itself.
type own struct{ text string }

func (o *own) UnmarshalJSON(data []byte) error {
	o.text = string(data)
	return nil
}

// Names looks at each object that a field of the type is for.
func TestNames(t *testing.T) {
	t.Parallel()
	type inner struct {
		X int `json:"x,omitempty"`
	}
	type outer struct {
		inner

		In     inner           `json:"in"`
		To     *inner          `json:"to"`
		List   []inner         `json:"list"`
		Any    map[string]any  `json:"any"`
		Raw    json.RawMessage `json:"raw"`
		Own    own             `json:"own"`
		Hidden int             `json:"-"`
		Plain  int
	}
	for text, want := range map[string]string{
		`{"x":1,"in":{"x":1},"to":{"x":2},"list":[{"x":1},{}],"Plain":1}`: "",
		`{"any":{"Y":1},"raw":{"Y":1},"own":{"Y":1}}`:                     "",
		`{"in":1,"list":{},"to":null}`:                                    "",
		`{"X":1}`:                                                         "X",
		`{"in":{"X":1}}`:                                                  "in.X",
		`{"to":{"y":1}}`:                                                  "to.y",
		`{"list":[{"x":1},{"X":2}]}`:                                      "list[1].X",
		`{"Hidden":1}`:                                                    "Hidden",
		`{"plain":1}`:                                                     "plain",
	} {
		err := Names(json.RawMessage(text), reflect.TypeFor[*outer]())
		got := ""
		if e, ok := errors.AsType[*UnknownFieldError](err); ok {
			got = e.Field
		}
		if got != want {
			t.Errorf("Names(%s) = %v; want field %q", text, err, want)
		}
	}
	err := Names(json.RawMessage(`{"y":{"z":1}}`), reflect.TypeFor[struct {
		B int `json:"b"`
		A int `json:"a"`
	}]())
	if e, ok := errors.AsType[*UnknownFieldError](err); !ok || !slices.Equal(e.Known, []string{"a", "b"}) {
		t.Errorf("Names() = %v; want the fields a and b", err)
	}
}
