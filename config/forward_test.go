package config_test

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
)

func TestParseForward(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text   string
		want   config.Forward
		listen string
		open   bool
	}{
		{"8080:80", config.Forward{Local: 8080, Port: 80}, ":8080", false},
		{"8080", config.Forward{Local: 8080, Port: 8080}, ":8080", false},
		{"0:80", config.Forward{Port: 80}, ":0", false},
		{"127.0.0.1:8080:80", config.Forward{Host: "127.0.0.1", Local: 8080, Port: 80}, "127.0.0.1:8080", false},
		{"localhost:8080:80", config.Forward{Host: "localhost", Local: 8080, Port: 80}, "localhost:8080", false},
		{"[::1]:8080:80", config.Forward{Host: "::1", Local: 8080, Port: 80}, "[::1]:8080", false},
		{"0.0.0.0:8080:80", config.Forward{Host: "0.0.0.0", Local: 8080, Port: 80}, "0.0.0.0:8080", true},
		{"0:80/http", config.Forward{Port: 80, HTTP: true}, ":0", false},
		{"8080/http", config.Forward{Local: 8080, Port: 8080, HTTP: true}, ":8080", false},
		{"example.com:8080:80", config.Forward{Host: "example.com", Local: 8080, Port: 80}, "example.com:8080", true},
	} {
		got, err := config.ParseForward(tt.text)
		if err != nil || got != tt.want || got.Listen() != tt.listen || got.Open() != tt.open {
			t.Errorf("ParseForward(%q) = %+v, %v, listen %s, open %t; want %+v, %s, %t", tt.text, got, err, got.Listen(), got.Open(), tt.want, tt.listen, tt.open)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"", "port in the session"},
		{"80:80/tcp", "port in the session"},
		{"80/http:80", "port on this machine"},
		{"80:", "port in the session"},
		{"80:0", `"0" is not a port: ports are 1 to 65535`},
		{"65536:80", `"65536" is not a port: ports are 0 to 65535`},
		{"-1:80", "port on this machine"},
		{"80:80:", "port in the session"},
		{":80:80", "HOST is empty"},
		{"::1:80:80", "too many colons"},
		{"a b", "port in the session"},
	} {
		if got, err := config.ParseForward(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseForward(%q) = %+v, %v; want %q", tt.text, got, err, tt.want)
		}
	}
}
