package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/tool"
)

// maxDepth bounds the nesting of a message. No method needs more than 8 levels;
// arguments of tools may have some of their own.
const maxDepth = 64

// checkJSON refuses what two readers could understand in different ways: bytes that are
// not UTF-8, halves of surrogate pairs, and names that an object has twice.
func checkJSON(data []byte) error {
	switch {
	case !utf8.Valid(data):
		return errors.New("it is not UTF-8")
	case tooDeep(data):
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	case !json.Valid(data):
		return errors.New("it is not JSON")
	case tool.LoneSurrogate(data):
		return errors.New("it has half of a surrogate pair")
	}
	return checkNames(data)
}

// tooDeep counts open brackets. The data need not be JSON.
func tooDeep(data []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// checkNames refuses valid JSON that has an object with a name twice.
func checkNames(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var open []map[string]bool // the objects and arrays around; nil for an array
	name := false              // the next text is a name
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			name = len(open) > 0 && open[len(open)-1] != nil
			continue
		case string:
			if name {
				names := open[len(open)-1]
				if names[t] {
					return fmt.Errorf("%s is given twice", shown(t))
				}
				names[t], name = true, false
				continue
			}
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}

// maxShown bounds what an error repeats of a message.
const maxShown = 64 // bytes

// shown quotes a text for an error, in printable characters.
func shown(text string) string {
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return strconv.QuoteToASCII(text)
}

// decode reads parameters: an object with the fields of T by their exact names, and no
// others. Missing parameters are an empty object.
func decode[T any](raw json.RawMessage) (T, error) {
	var v T
	if absent(raw) {
		return v, nil
	}
	if err := exact(raw, reflect.TypeFor[T](), ""); err != nil {
		return v, err
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, badParams("%s", unmarshalText(err))
	}
	return v, nil
}

func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// unmarshalText says what is wrong with a value in the words of JSON.
func unmarshalText(err error) string {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	want := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array", reflect.Map: "an object", reflect.Struct: "an object",
		reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Uint16: "a whole number", reflect.Float64: "a number",
	}[e.Type.Kind()]
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, want, e.Value)
}

// exact refuses fields that the type does not have. The decoder would accept a name in
// upper or lower case.
func exact(raw json.RawMessage, t reflect.Type, at string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || len(raw) == 0 || raw[0] != '{' {
		if at == "" {
			return badParams("expected an object")
		}
		return nil // the decoder says what is wrong with the value
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return badParams("%v", err)
	}
	names := map[string]reflect.Type{}
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[tag] = f.Type
	}
	for name, value := range members {
		ft, ok := names[name]
		if !ok {
			known := make([]string, 0, len(names))
			for n := range names {
				known = append(known, n)
			}
			slices.Sort(known)
			return badParams("there is no field %s; there are %s", shown(at+name), strings.Join(known, ", "))
		}
		if kind := ft.Kind(); kind == reflect.Struct || kind == reflect.Pointer && ft.Elem().Kind() == reflect.Struct {
			if err := exact(value, ft, at+name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeLine writes a value as JSON on one line, with a line end. Bytes that are not
// UTF-8 are replaced.
func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
