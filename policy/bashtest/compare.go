package bashtest

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/policy"
)

// scriptTime is the time after which a script is killed. What it has run by then counts.
const scriptTime = 2 * time.Second

// flatten returns the nodes of a tree, in no order.
func flatten(tree []*policy.Node) []*policy.Node {
	nodes := slices.Clone(tree)
	for i := 0; i < len(nodes); i++ {
		nodes = append(nodes, nodes[i].Children...)
	}
	return nodes
}

// Unpredicted returns the commands that were run and that are not in the tree of an
// explanation.
func Unpredicted(tree []*policy.Node, ran [][]string) [][]string {
	nodes := flatten(tree)
	var out [][]string
	for _, argv := range ran {
		if !slices.ContainsFunc(nodes, func(n *policy.Node) bool { return covers(n.Argv, argv) }) {
			out = append(out, argv)
		}
	}
	return out
}

// covers reports whether argv is what was predicted, word by word. A word that is not
// known may be none, one or many words. Only the last element of the program's path counts.
func covers(words []policy.Word, argv []string) bool {
	// ends[i] says that the words up to here can be the first i of argv.
	ends := make([]bool, len(argv)+1)
	ends[0] = true
	for n, word := range words {
		next := make([]bool, len(argv)+1)
		for i := range ends {
			switch {
			case !ends[i]:
			case !word.Known:
				for j := i; j <= len(argv); j++ {
					next[j] = true
				}
			case i < len(argv) && (argv[i] == word.Text || n == 0 && argv[i] == path.Base(word.Text)):
				next[i+1] = true
			}
		}
		ends = next
	}
	return ends[len(argv)]
}

// Mismatch is a script that a policy allows because it knows every command, and a command
// that bash runs in it and that the policy has not seen.
type Mismatch struct {
	Script string
	Ran    []string
}

// Compare runs a script that the policy allows, and returns a mismatch if there is one and
// how many commands ran. It does not run a script that the policy does not allow.
func Compare(ctx context.Context, p *policy.Policy, b *Bash, script string) (m *Mismatch, allowed bool, ran int, err error) {
	e := p.Explain(policy.Input{Script: script})
	if e.Decision.Verdict != policy.Allow {
		return nil, false, 0, nil
	}
	argvs, err := b.Run(ctx, script)
	if err != nil {
		return nil, true, 0, err
	}
	if missed := Unpredicted(e.Commands, argvs); len(missed) > 0 {
		return &Mismatch{Script: script, Ran: missed[0]}, true, len(argvs), nil
	}
	return nil, true, len(argvs), nil
}

// Shrink makes the script of a mismatch smaller, as long as it stays a mismatch. It removes
// runs of tokens, long ones first.
func Shrink(ctx context.Context, p *policy.Policy, b *Bash, m *Mismatch) *Mismatch {
	return &Mismatch{Script: shrink(m.Script, func(script string) bool {
		smaller, _, _, err := Compare(ctx, p, b, script)
		if smaller != nil && err == nil {
			m = smaller
		}
		return smaller != nil && err == nil
	}), Ran: m.Ran}
}

// shrink returns a text for which holds is true, and from which no run of tokens can be
// removed without making it false.
func shrink(text string, holds func(string) bool) string {
	parts := tokens(text)
	for size := len(parts) / 2; size > 0; {
		taken := false
		for i := 0; i+size <= len(parts); {
			rest := slices.Concat(parts[:i], parts[i+size:])
			if holds(strings.Join(rest, "")) {
				parts, taken = rest, true
			} else {
				i++
			}
		}
		if !taken || size > len(parts) {
			size = min(size, len(parts)) / 2
		}
	}
	return strings.Join(parts, "")
}

// tokens splits a text into words and other single characters. A path is one token, so
// that a smaller script cannot name another file by a part of it.
func tokens(text string) []string {
	var out []string
	for text != "" {
		n := len(text) - len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./"))
		n = max(n, 1)
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}
