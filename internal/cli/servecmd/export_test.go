package servecmd

// ScratchPrefix begins the name of a server's directory for files of its own.
const ScratchPrefix = scratchPrefix
