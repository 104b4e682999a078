package inject

import (
	"slices"
	"strings"
)

// Which header is a credential is decided by its name, because every service has its own. docs/network.md
// has the same list in words.
var (
	// credentialTexts are in the name of a credential, without its hyphens: X-Api-Key, X-TrackerToken.
	credentialTexts = []string{"authoriz", "authentic", "token", "apikey", "accesskey", "secret", "passw", "credential", "cookie", "signature", "assertion"}
	// credentialWords are a whole word in the name of a credential: X-Auth-Email, Ocp-Apim-Subscription-Key.
	credentialWords = []string{"auth", "key", "session", "sessionid", "jwt", "pass", "otp", "bearer", "dpop"}
	// harmlessTexts are in names that say none of who asks, although they look like it.
	harmlessTexts = []string{"idempotency", "csrf", "xsrf", "continuation", "pagetoken", "nexttoken", "atlassiantoken", "surrogatekey"}
)

// credential says whether a header carries a credential.
func credential(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	flat := strings.ReplaceAll(name, "-", "")
	in := func(text string) bool { return strings.Contains(flat, text) }
	if strings.HasPrefix(name, "sec-") || strings.HasPrefix(name, "access-control-") || slices.ContainsFunc(harmlessTexts, in) {
		return false
	}
	return slices.ContainsFunc(credentialTexts, in) ||
		slices.ContainsFunc(strings.Split(name, "-"), func(word string) bool { return slices.Contains(credentialWords, word) })
}

// Headers that describe the request or what is wanted. Servers repeat them in answers, some in another
// form, store them or pass them on, so no secret is put into them.
var (
	descriptiveNames = []string{
		"baggage", "cache-control", "connection", "date", "expect", "forwarded", "from", "host", "keep-alive", "link", "max-forwards", "origin",
		"pragma", "prefer", "priority", "referer", "te", "trailer", "transfer-encoding", "traceparent", "tracestate", "upgrade", "user-agent", "via",
		"x-correlation-id", "x-request-id",
	}
	descriptivePrefixes = []string{"accept", "access-control-", "content-", "if-", "sec-", "x-forwarded-"}
)

func descriptive(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(descriptiveNames, name) ||
		slices.ContainsFunc(descriptivePrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
