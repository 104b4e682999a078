package policy

// Explanation is what a policy sees in a script.
type Explanation struct {
	Decision Decision `json:"decision"`
	Commands []*Node  `json:"commands"`
}

// Node is one command that a script runs, or would.
type Node struct {
	Position Position `json:"position"`
	// Argv is the command in its canonical form: without quotes, escapes and
	// braces. A word that is not known may be none, one or many.
	Argv []Word `json:"argv"`
	// Via is how the command is reached from the one above it, "sudo" or "bash -c";
	// "" for a command that the script itself runs.
	Via string `json:"via"`
	// Verdict, Rule and Reason are of this command, not of those below it.
	Verdict  Verdict `json:"verdict"`
	Rule     string  `json:"rule"`
	Reason   string  `json:"reason"`
	Children []*Node `json:"children"`
}

// Word is a word of a command.
type Word struct {
	Text  string `json:"text"` // of a word that is not known, its source
	Known bool   `json:"known"`
}
