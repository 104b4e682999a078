package exit

import (
	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// LoadImages says how an image is put on the engine: see images.Options.
const LoadImages = "`sandboxbash image load FILE` or `sandboxbash image build DIR`"

// helps words what would help after an error of package config.
var helps = map[config.Help]string{
	config.HelpUnsafe: "if that is meant give it by --env-unsafe, or in env.unsafe",
	config.HelpValue:  "if that is meant give it with its value by --env-unsafe, or in env.unsafe",
	config.HelpPair:   "give both --tls-cert and --tls-key",
	config.HelpHead:   "give the 64 hexadecimal digits that `sandboxbash audit verify` has printed",
}

// WordConfig puts the words of this command line into the errors that err, an error of
// config.Load, is or joins.
func WordConfig(err error) {
	switch e := err.(type) { //nolint:errorlint // all of the tree is visited
	case *config.Error:
		if words, ok := helps[e.Help]; ok {
			e.Hint = words
		}
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			WordConfig(each)
		}
	case interface{ Unwrap() error }:
		WordConfig(e.Unwrap())
	}
}

// Hint words what would help after an error of package sandbox, "" if nothing is known.
func Hint(err error) string {
	code, about := sandbox.HintOf(err)
	switch code {
	case sandbox.HintCopy:
		return "copy it into the session with --workspace copy:" + about + ", and take changes out with `sandboxbash session pull`; " +
			"or give this process that directory of the engine's machine at the same path"
	case sandbox.HintMapped:
		return "copy it into the session with --workspace copy:" + about + ", and bring changes back with `sandboxbash session apply`; on a " +
			"rootless engine --profile dev can write there too"
	case sandbox.HintMount:
		return "copy it into the session with `sandboxbash session push " + about + " SESSION:PATH`, or name a directory that the engine's machine has at the same path"
	case sandbox.HintOwner:
		return "change its owner, name another user with --user, use copy:" + about + ", or --profile dev"
	case sandbox.HintDev:
		return "use --profile dev"
	case sandbox.HintStrict:
		return "use --profile strict"
	case sandbox.HintUnlimited:
		return "run `sandboxbash doctor` to see why, or use --profile dev knowingly"
	case sandbox.HintMemory:
		return "give it more with --memory"
	case sandbox.HintForce:
		return "--force overwrites it"
	case sandbox.HintResolver:
		return "end the program that listens there (`sandboxbash session ps " + about + "` and `session ports` list them), and do this again; " +
			"or start a session with --allow, which takes the port before the first command"
	case sandbox.HintSecretEnv:
		return "give it to single commands with --env, or to all by the configuration file: `secrets: [{name: " + about + ", from: env, inject: true}]`"
	case sandbox.HintKept:
		return "look at it with `sandboxbash session diff " + about + "`, or get it with `sandboxbash session pull " + about + ":. DIR`"
	}
	return ""
}
