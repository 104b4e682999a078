package policy

// Explanation is what a policy sees in a script.
type Explanation struct {
	Decision Decision `json:"decision"`
	Commands []*Node  `json:"commands"`
}

// Node is one command that a script runs or may run.
type Node struct {
	Position Position `json:"position"`
	// Argv is the command in its canonical form: without quotes, escapes and braces. A
	// word that is not known stands for no word, for one or for many.
	Argv []Word `json:"argv"`
	// Via says how the command is reached from its parent, for example "sudo" or
	// "bash -c". It is "" for a command that the script itself runs.
	Via string `json:"via"`
	// Verdict, Rule and Reason are about this command, not about its children.
	Verdict  Verdict `json:"verdict"`
	Rule     string  `json:"rule"`
	Reason   string  `json:"reason"`
	Children []*Node `json:"children"`
}

// Word is a word of a command.
type Word struct {
	Text  string `json:"text"` // the source of a word that is not known
	Known bool   `json:"known"`
}
