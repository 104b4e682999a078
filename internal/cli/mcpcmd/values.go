package mcpcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
)

// An ordered object of JSON: its members are written in the order given.
type ordered []member

type member struct {
	name  string
	value any
}

// object returns an object of names and values in turn.
func object(pairs ...any) ordered {
	o := ordered{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		o = append(o, member{name, pairs[i+1]})
	}
	return o
}

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(compact(m.name))
		b.WriteByte(':')
		b.Write(compact(m.value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// compact is JSON in its shortest form, without escapes for HTML.
func compact(value any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(err) // values are this program's
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// quoted is a text of TOML: a basic string, whose escapes are those of JSON.
func quoted(text string) string { return string(compact(text)) }

func quotedList(list []string) string {
	all := make([]string, len(list))
	for i, text := range list {
		all[i] = quoted(text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// firstThere returns the first file that there is, or the last one.
func firstThere(files ...string) string {
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil {
			return file
		}
	}
	return files[len(files)-1]
}
