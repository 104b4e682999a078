package policy

// finding is a place in a script that decides.
type finding struct {
	rule   string
	at     int // its offset in the outermost script
	reason string
}

// findings is what the walk of a script has found: the first denial and the first place
// that cannot be known. A denial decides over any opaque place, so that a walk goes on
// after the latter. If the script is being explained, findings also writes the tree.
type findings struct {
	on     map[string]bool // the rules that are switched on, by id
	denial *finding
	opaque *finding
	// silent counts the walks under way of text that is only a guess, or is known in
	// part. What cannot be known there says nothing about the script; what is denied
	// there is denied.
	silent int

	node  *Node     // of the command that is being looked at; nil unless explaining
	lines lineIndex // of the outermost script; nil unless explaining
}

// deny notes that a rule refuses something, if the rule is on.
func (f *findings) deny(id string, at int, reason string) {
	if !f.on[id] {
		return
	}
	if f.denial == nil {
		f.denial = &finding{id, at, reason}
	}
	if f.node != nil && f.node.Verdict != Deny {
		f.node.Verdict, f.node.Rule, f.node.Reason = Deny, id, reason
	}
}

// notKnown notes that something cannot be known.
func (f *findings) notKnown(kind string, at int, reason string) {
	if f.silent > 0 {
		return
	}
	if f.opaque == nil {
		f.opaque = &finding{kind, at, reason}
	}
	if f.node != nil && f.node.Verdict == Allow {
		f.node.Verdict, f.node.Rule, f.node.Reason = Opaque, kind, reason
	}
}

// silently calls walk, and ignores what cannot be known in it.
func (f *findings) silently(walk func()) {
	f.silent++
	walk()
	f.silent--
}

// record adds a command to the tree, and makes it the one that is being looked at. The
// caller restores node.
func (f *findings) record(via string, args []arg) {
	if f.node == nil || f.silent > 0 {
		return
	}
	n := &Node{Position: f.lines.position(args[0].at), Via: via, Verdict: Allow, Children: []*Node{}}
	for _, a := range args {
		n.Argv = append(n.Argv, Word{Text: a.text, Known: a.parts == nil})
	}
	f.node.Children = append(f.node.Children, n)
	f.node = n
}

// hiddenDenial walks code that is defined and not run. It notes a rule's denial in it
// under another rule, id.
func (f *findings) hiddenDenial(id string, at int, reason string, walk func()) {
	denial, opaque, node := f.denial, f.opaque, f.node
	f.denial, f.node = nil, nil
	f.silently(walk)
	hidden := f.denial != nil
	f.denial, f.opaque, f.node = denial, opaque, node
	if hidden {
		f.deny(id, at, reason)
	}
}
