package sandbox

import (
	"strings"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sink"
)

// offlineTail is how many bytes at the end of each stream are looked at for offlineWords: what ended
// a command stands there, behind the retries of pip and npm.
const offlineTail = 8 << 10

// offlineWords are what programs write if a name does not resolve or no route leads out, in small
// letters.
var offlineWords = []string{
	"temporary failure in name resolution", // getaddrinfo of glibc, EAI_AGAIN: Python, ping, ssh, wget
	"name or service not known",            // the same, EAI_NONAME
	"nodename nor servname provided",       // the same, of BSD
	"temporary failure resolving",          // apt
	"could not resolve host",               // curl, git, Maven
	"unable to resolve host address",       // wget
	"wget: bad address",                    // BusyBox
	"try again later (eai_again)",          // musl, as apk shows it
	"getaddrinfo eai_again",                // Node
	"getaddrinfo enotfound",
	"npm error code eai_again",
	"failed to lookup address information", // Rust
	"could not resolve hostname",           // ssh
	"couldn't resolve host",                // rsync, older curl
	"no such host",                         // Go
	"unknownhostexception",                 // Java
	"dns error:",                           // uv, cargo
	"network is unreachable",
}

// offline reports whether the output of a command that failed ends as if a name had not resolved,
// or no route had led out. Nothing is decided by it: see Result.Offline.
func offline(st exec.Status, out sink.Output) bool {
	failed := st.Reason == exec.Exited && st.Code != 0 || st.Reason == exec.TimedOut
	return failed && (saysOffline(out.Stdout.Text()) || saysOffline(out.Stderr.Text()))
}

func saysOffline(text string) bool {
	text = strings.ToLower(text[max(0, len(text)-offlineTail):])
	for _, words := range offlineWords {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// OfflineText is what Offline means for the reader of a command's output.
const OfflineText = "network: this session has none, which may be why the command failed; a user can allow a host with a rule, as in --allow @pypi"
