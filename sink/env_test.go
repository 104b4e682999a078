package sink

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestSecretName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"X_API_KEY": true, "GITHUB_TOKEN": true, "AWS_SECRET_ACCESS_KEY": true, "AWS_SESSION_TOKEN": true, "npm_config__authToken": true,
		"DB_PASSWORD": true, "PGPASSWORD": true, "MYSQL_PWD": true, "DATABASE_URL": true, "openai_api_key": true, "SSH_PASSPHRASE": true,
		"ACTIONS_RUNTIME_TOKEN": true, "ACTIONS_ID_TOKEN_REQUEST_URL": true, "GOOGLE_CREDENTIALS": true, "APIKEY": true, "MYSECRET": true,
		"HTTP_AUTHORIZATION": true, "NPM_AUTH": true, "SESSION_COOKIE": true,
		"PATH": false, "HOME": false, "PWD": false, "OLDPWD": false, "SSH_AUTH_SOCK": false, "SSH_ASKPASS": false, "GIT_ASKPASS": false,
		"KEYBOARD": false, "MONKEY": false, "AUTHOR": false, "GIT_AUTHOR_NAME": false, "XAUTHORITY": false, "TOKENIZERS_PARALLELISM": false,
		"SECRET_FILE": false, "KEY_PATH": false, "": false, "AWS_REGION": false,
	} {
		if got := SecretName(name); got != want {
			t.Errorf("SecretName(%q) = %v; want %v", name, got, want)
		}
	}
}

func TestFromEnviron(t *testing.T) {
	t.Parallel()
	got := FromEnviron([]string{
		"PATH=/usr/bin:/bin", "Z_TOKEN=zzzzzzzzzz", "A_KEY=aaaaaaaa", "SHORT_KEY=1234567", "AUTH=disabled", "=C:=C:\\", "NOEQUALS",
		"PROXY=http://user:p4ssw0rd-x@host:8080/path", "X(KEY)_TOKEN=abcdefgh", "PLAIN=https://host/a:b@c",
		"HTTPS_PROXY=http://only-token@host:8080", "HTTP_PROXY=http://name@host:8080", "GIT_URL=https://long-name@host/x",
	})
	want := []Secret{{Name: "A_KEY", Value: "aaaaaaaa"}, {Name: "HTTPS_PROXY", Value: "only-token"}, {Name: "PROXY", Value: "p4ssw0rd-x"}, {Name: "X_KEY__TOKEN", Value: "abcdefgh"}, {Name: "Z_TOKEN", Value: "zzzzzzzzzz"}}
	if !slices.Equal(got, want) {
		t.Errorf("FromEnviron() = %v; want %v", got, want)
	}
	if s, warnings, err := NewSecrets(got); s.Len() != len(want) || warnings != nil || err != nil {
		t.Errorf("NewSecrets(FromEnviron()) = %d secrets, %v, %v", s.Len(), warnings, err)
	}
}

func FuzzFromEnviron(f *testing.F) {
	f.Add("A_KEY=aaaaaaaa")
	f.Add("U=postgres://u:12345678@h/d")
	f.Fuzz(func(t *testing.T, entry string) {
		for _, s := range FromEnviron([]string{entry}) {
			if sent, err := url.PathUnescape(strings.TrimPrefix(entry, s.Name)); err == nil && !strings.Contains(entry, s.Value) && strings.Contains(sent, s.Value) {
				continue // a password as it is sent
			}
			if _, _, err := NewSecrets([]Secret{s}); err != nil || len(strings.TrimRight(s.Value, "\r\n")) < MinSecret || !strings.Contains(entry, s.Value) {
				t.Errorf("FromEnviron(%q) has %+v", entry, s)
			}
		}
	})
}
