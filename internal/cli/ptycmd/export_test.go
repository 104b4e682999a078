package ptycmd

// Handover is what the starter of a holder sends to it.
type Handover = handover

// WithPrompt is withPrompt.
var WithPrompt = withPrompt
