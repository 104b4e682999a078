package exit

import "github.com/sandboxbash/sandboxbash/sandbox"

// Hint words what would help after an error of package sandbox, "" if nothing is known.
func Hint(err error) string {
	code, about := sandbox.HintOf(err)
	switch code {
	case sandbox.HintCopy:
		return "copy it into the session with --workspace copy:" + about + ", and take changes out with `sandboxbash session pull`; " +
			"or give this process that directory of the engine's machine at the same path"
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
	case sandbox.HintKept:
		return "look at it with `sandboxbash session diff " + about + "`, or get it with `sandboxbash session pull " + about + ":. DIR`"
	}
	return ""
}
