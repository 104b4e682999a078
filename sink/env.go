package sink

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// secretWords are words in the names of secrets, between underscores. secretEnds are the
// ends of such names that need no underscore.
var (
	secretWords = []string{
		"AUTH", "AUTHORIZATION", "CREDENTIAL", "CREDENTIALS", "CREDS", "COOKIE", "JWT", "KEY", "KEYS", "PASS",
		"PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PWD", "SECRET", "SECRETS", "TOKEN", "TOKENS",
	}
	secretEnds = []string{"APIKEY", "AUTHTOKEN", "CREDENTIALS", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN"}
	// secretNames hold credentials although their names have no such word: connection
	// strings with a password in them.
	secretNames = []string{
		"ACTIONS_ID_TOKEN_REQUEST_URL", "AMQP_URL", "AZURE_STORAGE_CONNECTION_STRING", "CONNECTION_STRING",
		"DATABASE_URL", "DB_URL", "DOCKER_AUTH_CONFIG", "KUBECONFIG_DATA", "MONGODB_URI", "MONGO_URL", "MYSQL_PWD",
		"PGPASSWORD", "POSTGRES_URL", "REDISCLI_AUTH", "REDIS_URL", "SENTRY_DSN", "SLACK_WEBHOOK_URL",
	}
	// plainNames have such a word but hold no secret.
	plainNames = []string{
		"COLORFGBG", "OLDPWD", "PWD", "SSH_AUTH_SOCK", "XAUTHORITY", "GPG_KEY_ID", "AWS_ACCESS_KEY_ID_FILE",
		"DBUS_SESSION_BUS_ADDRESS", "TOKENIZERS_PARALLELISM",
	}
	// plainEnds are the ends of names of files and programs that give a secret.
	plainEnds = []string{"_ASKPASS", "_FILE", "_PATH", "_DIR", "_SOCK"}
)

// SecretName reports whether an environment variable with this name counts as a secret.
// Case does not matter. Such a variable enters a session only by an entry under secrets,
// and its value is masked.
func SecretName(name string) bool {
	upper := strings.ToUpper(name)
	switch {
	case slices.Contains(secretNames, upper):
		return true
	case slices.Contains(plainNames, upper):
		return false
	case slices.ContainsFunc(plainEnds, func(end string) bool { return strings.HasSuffix(upper, end) }):
		return false
	}
	words := strings.FieldsFunc(upper, func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(secretWords, w) }) {
		return true
	}
	return slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(upper, end) })
}

// FromEnviron returns the credentials in an environment (entries "K=V", as from
// os.Environ): the values of variables with secret names, and passwords in URLs
// whatever the name, in variables that name a proxy also a user without a password. Values that are too short to be searched for are left out without
// a warning: the user has not named them. The result is in the order of names.
func FromEnviron(environ []string) []Secret {
	var out []Secret
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		if SecretName(name) && !harmless(value) {
			out = append(out, Secret{Name: maskName(name), Value: value})
		}
		for _, credential := range urlCredentials(name, value) {
			out = append(out, Secret{Name: maskName(name), Value: credential})
		}
	}
	out = slices.DeleteFunc(out, func(s Secret) bool { return len(strings.TrimRight(s.Value, "\r\n")) < MinSecret })
	slices.SortStableFunc(out, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// harmless reports whether a value is an ordinary word that a variable with a secret's
// name may have, such as "disabled". Masking it would change ordinary output.
func harmless(value string) bool {
	switch strings.ToLower(value) {
	case "disabled", "required", "optional", "anonymous", "password", "publickey", "undefined":
		return true
	}
	return false
}

// urlCredentials returns the password of a URL of the form scheme://user:password@…, as it is written and as it
// is sent. A variable such as HTTPS_PROXY may leave out the scheme, and a user without a password may be a token.
func urlCredentials(name, value string) []string {
	proxy := strings.HasSuffix(strings.ToUpper(name), "_PROXY")
	_, rest, ok := strings.Cut(value, "://")
	if !ok && proxy {
		rest = value
	}
	authority, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return nil
	}
	credential, password, _ := strings.Cut(authority[:at], ":")
	if password != "" || !proxy {
		credential = password
	}
	if credential == "" {
		return nil
	}
	if sent, err := url.PathUnescape(credential); err == nil && sent != credential {
		return []string{credential, sent}
	}
	return []string{credential}
}

// maskName returns the name of a variable as it is shown in a mask.
func maskName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && (isAlnum(byte(r)) || r == '_' || r == '-' || r == '.') {
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), 128)]
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
