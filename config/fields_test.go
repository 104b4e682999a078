package config

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"
)

// leaves returns the addresses of all fields of a struct and of the structs in it, with
// their names.
func leaves(v reflect.Value, prefix string) map[any]string {
	all := map[any]string{}
	for i := range v.NumField() {
		name, field := prefix+v.Type().Field(i).Name, v.Field(i)
		if field.Kind() != reflect.Struct {
			all[field.Addr().Interface()] = name
			continue
		}
		maps.Copy(all, leaves(field, name+"."))
	}
	return all
}

// Each field of the configuration is filled by one setting, so that no field is forgotten
// and no two settings overwrite each other.
func TestEachFieldIsFilledOnce(t *testing.T) {
	t.Parallel()
	derived := []string{
		"File",                      // the file itself
		"Secrets",                   // a list of tables
		"Policy.Rules",              // a list of tables
		"NetworkRules.Allow",        // what AllowText says
		"NetworkRules.Deny",         // what DenyText says
		"NetworkRules.Exclude",      // what ExcludeText says
		"NetworkRules.Remove",       // what RemoveText says
		"NetworkRules.Forward",      // what ForwardText says
		"NetworkRules.AllowFrom",    // where it comes from
		"NetworkRules.DenyFrom",     // where it comes from
		"NetworkRules.Limits.Rules", // of the tables in network.allow
		"Agent.Contract",            // policy.contract, with a default of its own
	}
	var c Config
	fields := leaves(reflect.ValueOf(&c).Elem(), "")
	filledBy := map[string]string{}
	for _, s := range settingsOf(&c) {
		if s.to == nil {
			if s.Key != "env.unsafe" { // it is added to Env.Set
				t.Errorf("%s fills no field", s.Key)
			}
			continue
		}
		name, ok := fields[s.to]
		switch {
		case !ok:
			t.Errorf("%s fills no field of this Config", s.Key)
		case filledBy[name] != "":
			t.Errorf("%s and %s both fill %s", filledBy[name], s.Key, name)
		}
		filledBy[name] = s.Key
	}
	for _, name := range fields {
		if by := filledBy[name]; (by == "") != slices.Contains(derived, name) {
			t.Errorf("the field %s is filled by %q; want a setting, or the field among the derived ones", name, by)
		}
	}
}

// The type of each field is the one that the setting's kind is read as.
func TestFieldsHaveTheTypesOfTheirKinds(t *testing.T) {
	t.Parallel()
	types := map[Kind][]any{
		Text: {new(string)}, Choice: {new(string)}, Duration: {new(time.Duration)}, Size: {new(int64)}, Count: {new(int64), new(int)},
		Number: {new(float64)}, Switch: {new(bool)}, List: {new([]string)}, Lines: {new([]string)},
	}
	for _, s := range settingsOf(&Config{}) {
		if s.to == nil {
			continue
		}
		fits := func(sample any) bool { return reflect.TypeOf(sample) == reflect.TypeOf(s.to) }
		if !slices.ContainsFunc(types[s.Kind], fits) {
			t.Errorf("%s of kind %d fills a %T", s.Key, s.Kind, s.to)
		}
		if s.path && s.Kind != Text && s.Kind != List {
			t.Errorf("%s is a path of kind %d; want Text or List", s.Key, s.Kind)
		}
		if s.word != "" && !s.path {
			t.Errorf("%s has the word %q, and is not a path", s.Key, s.word)
		}
	}
}

// No key is a table of another: a value for the one would hide the other. Only network is
// both, see stored.
func TestNoKeyIsATable(t *testing.T) {
	t.Parallel()
	keys := []string{secretsKey, rulesKey}
	for s := range Settings() {
		keys = append(keys, s.Key)
	}
	for _, a := range keys {
		for _, b := range keys {
			if a != networkKey && len(b) > len(a) && b[:len(a)+1] == a+"." {
				t.Errorf("%s is a setting and the table of %s", a, b)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"timeout", "limits.memory", "limits.pids", "grace", "env.pass"}
	for key, want := range map[string]string{
		"timeout": "timeout", "timeuot": "timeout", "timout": "timeout", "timeouts": "timeout",
		"memory": "limits.memory", "limit.memory": "limits.memory", "pass": "env.pass",
		"grcae": "grace", "": "", "x": "", "something.else": "", "env.pas": "env.pass", "e.pas": "",
	} {
		if got := nearest(key, known); got != want {
			t.Errorf("nearest(%q) = %q; want %q", key, got, want)
		}
	}
	if got := nearest("timeout", nil); got != "" {
		t.Errorf("nearest() of no keys = %q; want none", got)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"abc", "abc", 0},
		{"", "abc", 3},
		{"abc", "axc", 1},
		{"abc", "ac", 1},
		{"ac", "abc", 1},
		{"ab", "ba", 2},
		{"kitten", "sitting", 3},
	} {
		if got, back := distance(test.a, test.b), distance(test.b, test.a); got != test.want || back != test.want {
			t.Errorf("distance(%q, %q) = %d, and %d the other way round; want %d", test.a, test.b, got, back, test.want)
		}
	}
}

// What an error repeats of a value is short, quoted and valid UTF-8.
func TestShown(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return string(slices.Repeat([]byte("x"), n)) }
	for value, want := range map[string]string{
		"": `""`, "a b": `"a b"`, "a\x1b[31m\n": `"a\x1b[31m\n"`, "\xff": `"\xff"`,
		x(64): `"` + x(64) + `"`, x(65): `"` + x(64) + `…"`, x(63) + "ä": `"` + x(63) + `…"`,
	} {
		if got := shown(value); got != want {
			t.Errorf("shown(%q) = %s; want %s", value, got, want)
		}
	}
}
