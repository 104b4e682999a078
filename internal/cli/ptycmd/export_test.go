package ptycmd

// What the starter of a holder and the holder say to each other.
type (
	Handover       = handover
	HandoverAnswer = handoverAnswer
)
