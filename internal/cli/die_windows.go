package cli

// dieOf returns: Windows has no signals.
func dieOf(string) {}
