package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Decode reads one document that Check accepts into v, which has to have all fields of the
// document, by their exact names. The error says in a few words what is wrong.
func Decode(data []byte, v any) error {
	if err := Check(data, 0); err != nil {
		if e, ok := errors.AsType[*Error](err); !ok || e.Problem != NotJSON {
			return err
		}
		// The decoder says where it is not JSON.
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one JSON document")
		}
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return Names(data, reflect.TypeOf(v))
}

// UnknownFieldError is a field of an object that the type for it does not have.
type UnknownFieldError struct {
	Field string   // with the names of the fields around it, as in a.b
	Known []string // the fields that the type has, sorted
}

func (e *UnknownFieldError) Error() string { return "unknown field " + shown(e.Field) }

// Names refuses a field that a type does not have: encoding/json would also take its name in
// upper or lower case. What reads itself, as a json.Unmarshaler, looks at its own names. The
// JSON is valid. The error is an *UnknownFieldError.
func Names(raw json.RawMessage, t reflect.Type) error { return names(raw, t, "") }

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func names(raw json.RawMessage, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() { //nolint:exhaustive // the others have no fields
	case reflect.Slice, reflect.Array:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return nil //nolint:nilerr // the decoder says what is wrong with the value
		}
		for i, one := range list {
			if err := names(one, t.Elem(), fmt.Sprintf("%s[%d].", strings.TrimSuffix(at, "."), i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return nil //nolint:nilerr // as above
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if err := names(members[name], t.Elem(), at+name+"."); err != nil {
				return err
			}
		}
	case reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return nil //nolint:nilerr // as above
		}
		known := map[string]reflect.Type{}
		fieldsOf(t, known)
		for _, name := range slices.Sorted(maps.Keys(members)) { // the same error each time
			ft, ok := known[name]
			if !ok {
				return &UnknownFieldError{Field: at + name, Known: slices.Sorted(maps.Keys(known))}
			}
			if err := names(members[name], ft, at+name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldsOf adds the fields of a struct, and of those that are embedded in it.
func fieldsOf(t reflect.Type, known map[string]reflect.Type) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			fieldsOf(f.Type, known)
		case !f.IsExported() || tag == "-":
		case tag == "":
			known[f.Name] = f.Type
		default:
			known[tag] = f.Type
		}
	}
}
