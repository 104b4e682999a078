package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/sandboxbash/sandboxbash/internal/strictjson"
	"github.com/sandboxbash/sandboxbash/sink"
)

// member is a field of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// fault is an error in a call's arguments. Each contract has its own words for it.
type fault struct {
	what  problem
	field string // "" is the whole
	want  string // what it should be
	value json.RawMessage
	cause string // of notJSON
}

type problem int

const (
	notJSON problem = iota
	wrongType
	missing
	unknown
	duplicate
)

func (f *fault) Error() string { return f.text() }

// text is used where a contract has no words of its own.
func (f *fault) text() string {
	switch f.what {
	case missing:
		return f.field + " is required"
	case unknown:
		return fmt.Sprintf("there is no field %q", shortened(f.field))
	case duplicate:
		return fmt.Sprintf("%q is given twice", shortened(f.field))
	case wrongType:
		where := f.field
		if where != "" {
			where += ": "
		}
		return fmt.Sprintf("%sexpected %s, got %s", where, f.want, kindOf(f.value))
	default:
		return f.cause
	}
}

// parseObject reads a JSON object strictly: it refuses what two readers could
// understand in different ways. Empty input is an empty object.
func parseObject(raw []byte) ([]member, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	fields, err := strictjson.Members(raw)
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		return nil, faultOf(e, raw)
	}
	members := make([]member, 0, len(fields))
	for _, f := range fields {
		members = append(members, member{f.Name, f.Value})
	}
	return members, nil
}

// faultOf says what is wrong with arguments that are not an object to be read.
func faultOf(e *strictjson.Error, raw []byte) *fault {
	switch e.Problem {
	case strictjson.NotUTF8:
		return &fault{cause: "they are not UTF-8"}
	case strictjson.HalfPair:
		return &fault{cause: "they have half of a surrogate pair"}
	case strictjson.NotObject:
		return &fault{what: wrongType, want: "an object", value: raw}
	case strictjson.Duplicate:
		return &fault{what: duplicate, field: e.Name}
	default:
		return &fault{cause: "they are not JSON"}
	}
}

// kindOf names a JSON value by its type.
func kindOf(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '[':
		return "an array"
	case '{':
		return "an object"
	default:
		return "the number " + shortened(string(value))
	}
}

// shortened bounds what an error repeats of an argument.
func shortened(text string) string {
	const most = 64 // bytes
	if len(text) <= most {
		return text
	}
	return sink.HeadBytes(text, most) + "…"
}

func (m member) text() (string, error) {
	var s string
	if m.value[0] != '"' || json.Unmarshal(m.value, &s) != nil {
		return "", &fault{what: wrongType, field: m.name, want: "a string", value: m.value}
	}
	return s, nil
}

func (m member) flag() (bool, error) {
	switch string(m.value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, &fault{what: wrongType, field: m.name, want: "a boolean", value: m.value}
}

// number reads a number that a double can hold. Minus zero is zero.
func (m member) number() (float64, error) {
	if m.value[0] != '-' && (m.value[0] < '0' || m.value[0] > '9') {
		return 0, &fault{what: wrongType, field: m.name, want: "a number", value: m.value}
	}
	f, err := strconv.ParseFloat(string(m.value), 64)
	if err != nil { // too large: its form is JSON's
		return 0, &fault{what: wrongType, field: m.name, want: "a number that a double can hold", value: m.value}
	}
	return f + 0, nil
}

// count reads a whole number that is not negative. Numbers that an int64 cannot hold
// become its maximum.
func (m member) count() (int64, error) {
	f, err := m.number()
	if err != nil || f < 0 || f != math.Trunc(f) {
		return 0, &fault{what: wrongType, field: m.name, want: "a whole number from 0 on", value: m.value}
	}
	if f >= math.MaxInt64 {
		return math.MaxInt64, nil
	}
	return int64(f), nil
}

// texts reads an array of strings.
func (m member) texts() ([]string, error) {
	bad := &fault{what: wrongType, field: m.name, want: "an array of strings", value: m.value}
	var raw []json.RawMessage
	if m.value[0] != '[' || json.Unmarshal(m.value, &raw) != nil {
		return nil, bad
	}
	list := make([]string, len(raw))
	for i, v := range raw {
		var err error
		if list[i], err = (member{m.name, v}).text(); err != nil {
			return nil, bad
		}
	}
	return list, nil
}

// jsNumber formats a number as JavaScript and JSON do.
func jsNumber(f float64) string {
	text, err := json.Marshal(f)
	if err != nil { // NaN or an infinity, which JSON cannot express
		return fmt.Sprint(f)
	}
	return string(text)
}
