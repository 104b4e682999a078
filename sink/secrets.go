package sink

import "github.com/sandboxbash/sandboxbash/internal/scrub"

// MinSecret is the length of the shortest secret, in bytes. A shorter one would be found
// in unrelated text.
const MinSecret = scrub.MinSecret

// Secret is a value to be masked, and the name that is shown in its place.
type Secret = scrub.Secret

// Secrets is a set of secrets, prepared for the search. It never changes, so that any
// number of sinks may use it at the same time. A nil *Secrets has none.
type Secrets = scrub.Secrets

// Warning says that a secret is not masked, and why. It has the secret's name, never its
// value.
type Warning = scrub.Warning

// NewSecrets prepares the search for the secrets as they are, in base64 and hex, and
// escaped for URLs, JSON, HTML and shells. A secret that cannot be searched for is left
// out, with a warning. It returns an error if a name cannot be shown in a mask.
//
// Line ends at the end of a value are not part of it. If two secrets have the same
// value, the first one's name is shown.
func NewSecrets(list []Secret) (*Secrets, []Warning, error) { return scrub.NewSecrets(list) }
