package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/strictjson"
)

// maxDepth bounds the nesting of a message. No method needs more than 8 levels;
// arguments of tools may have some of their own.
const maxDepth = 64

// checkJSON refuses what two readers could understand in different ways, and what is nested
// too deep.
func checkJSON(data []byte) error { return strictjson.Check(data, maxDepth) }

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
	if raw[0] != '{' {
		return v, badParams("expected an object")
	}
	if e, ok := errors.AsType[*strictjson.UnknownFieldError](strictjson.Names(raw, reflect.TypeFor[T]())); ok {
		return v, badParams("there is no field %s; there are %s", shown(e.Field), strings.Join(e.Known, ", "))
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
		reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Uint64: "a whole number from 0 on", reflect.Float64: "a number",
	}[e.Type.Kind()]
	text := fmt.Sprintf("expected %s, got %s", want, e.Value)
	if field := strings.TrimPrefix(e.Field, "TerminalRequest."); field != "" { // it is embedded
		text = field + ": " + text
	}
	return text
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
