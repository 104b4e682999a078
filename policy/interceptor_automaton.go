package policy

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// automaton decides whether a pattern matches, in one pass over the text. It is a
// deterministic automaton that is built while it runs, as in RE2: a state is the set of
// the program's instructions that wait for the next character. Characters that the
// program cannot tell apart form a class, so that a state has one transition per class.
//
// For each character, run takes the transition of the current state. If the transition
// is not known yet, step computes it: it follows the program from the state's
// instructions, and from the start for a match that begins here, through everything that
// takes no character, and collects what comes after this one. Two states end a run:
// accepted, once the program can match, and rejected, once it no longer can.
//
// Package regexp does the same work without remembering states and without a deadline.
// docs/adr/0032 has the measurements.
type automaton struct {
	prog   *syntax.Prog
	sticky bool // only a match at the start counts
	// classes holds the first character of each class, sorted, from 0 on; ascii holds
	// the class of each byte below 0x80.
	classes  []rune
	ascii    [utf8.RuneSelf]uint16
	machines sync.Pool // of *machine
}

// end returns the class of the end of the text, which comes after the others.
func (a *automaton) end() int { return len(a.classes) }

func newAutomaton(prog *syntax.Prog, sticky bool) *automaton {
	a := &automaton{prog: prog, sticky: sticky}
	a.classes = []rune{0}
	for _, r := range wordRunes { // for \b
		a.classes = append(a.classes, r.low, r.high+1)
	}
	for i := range prog.Inst {
		a.classes = append(a.classes, edges(&prog.Inst[i])...)
	}
	slices.Sort(a.classes)
	a.classes = slices.Compact(a.classes)
	for c := range a.ascii {
		a.ascii[c] = uint16(a.class(rune(c)))
	}
	a.machines.New = func() any { return newMachine(a) }
	return a
}

// edges returns the characters at which an instruction starts or stops to match.
func edges(inst *syntax.Inst) []rune {
	var out []rune
	switch inst.Op { //nolint:exhaustive // the others take no character
	case syntax.InstRune, syntax.InstRune1:
		set := inst.Rune
		if len(set) == 1 {
			set = []rune{set[0], set[0]}
		}
		for i := 0; i+1 < len(set); i += 2 {
			out = append(out, set[i], set[i+1]+1)
			// [Aa] is compiled to A with its folds.
			for r := unicode.SimpleFold(set[i]); len(inst.Rune) == 1 && r != set[i]; r = unicode.SimpleFold(r) {
				out = append(out, r, r+1)
			}
		}
	case syntax.InstRuneAnyNotNL:
		out = append(out, '\n', '\n'+1)
	}
	return out
}

func (a *automaton) class(r rune) int {
	i, found := slices.BinarySearch(a.classes, r)
	if !found {
		i--
	}
	return i
}

func (a *automaton) match(texts []segment, deadline time.Time) (at int, decided bool) {
	m, ok := a.machines.Get().(*machine)
	if !ok {
		m = newMachine(a)
	}
	defer a.machines.Put(m)
	for i, s := range texts {
		switch matched, decided := m.run(s.text, deadline); {
		case matched:
			return i, true
		case !decided:
			return none, false
		}
	}
	return none, true
}

// state is a set of instructions that wait for a character.
type state struct {
	insts []uint32
	prev  rune     // stands for the character before: none (-1), a word's, or another
	next  []*state // by class; nil if not known yet
}

// The states that end a run.
var (
	accepted = &state{}
	rejected = &state{}
)

// machine is a run of an automaton, with the states that it remembers. It is for one
// goroutine at a time.
type machine struct {
	*automaton
	states map[string]*state
	start  *state
	size   int // bytes that the states take
	// Scratch space of a step: instructions to look at, and those seen already.
	stack []uint32
	seen  []bool
	spent int // instructions looked at since the clock was read
}

// maxMemory bounds what a machine remembers, in bytes. At the bound it forgets all states
// but the current one.
const maxMemory = 4 << 20

// perClock is how many instructions a machine looks at between reads of the clock, which
// takes some tens of microseconds.
const perClock = 4096

func newMachine(a *automaton) *machine {
	m := &machine{automaton: a, seen: make([]bool, len(a.prog.Inst))}
	m.forget()
	return m
}

func (m *machine) forget() {
	m.states, m.size = map[string]*state{}, 0
	m.start = m.state(nil, -1)
}

func (m *machine) run(text string, deadline time.Time) (matched, decided bool) {
	s := m.start
	for i := 0; i <= len(text); {
		class, size := m.end(), 1
		if i < len(text) {
			if c := text[i]; c < utf8.RuneSelf {
				class = int(m.ascii[c])
			} else {
				var r rune
				r, size = utf8.DecodeRuneInString(text[i:])
				class = m.class(r)
			}
		}
		i += size
		next := s.next[class]
		if next == nil {
			if m.spent > perClock {
				m.spent = 0
				if time.Now().After(deadline) {
					return false, false
				}
			}
			next = m.step(s, class)
		}
		switch next {
		case accepted:
			return true, true
		case rejected:
			return false, true
		}
		s = next
	}
	return false, true
}

// step computes the transition of a state on a class.
func (m *machine) step(s *state, class int) *state {
	next := m.follow(s, class)
	s.next[class] = next
	return next
}

func (m *machine) follow(s *state, class int) *state {
	r := rune(-1)
	if class < len(m.classes) {
		r = m.classes[class]
	}
	empty := syntax.EmptyOpContext(s.prev, r)
	stack := append(m.stack[:0], s.insts...)
	if !m.sticky || s.prev < 0 {
		stack = append(stack, uint32(m.prog.Start))
	}
	clear(m.seen)
	m.spent += len(m.seen) / 16 // the clearing
	var out []uint32
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if m.seen[pc] {
			continue
		}
		m.seen[pc] = true
		m.spent++
		switch inst := &m.prog.Inst[pc]; inst.Op {
		case syntax.InstMatch:
			m.stack = stack
			return accepted
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^empty == 0 {
				stack = append(stack, inst.Out)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if r >= 0 && inst.MatchRune(r) {
				out = append(out, inst.Out)
			}
		case syntax.InstFail:
		}
	}
	m.stack = stack
	switch {
	case r < 0, len(out) == 0 && (m.sticky || m.prog.StartCond()&syntax.EmptyBeginText != 0):
		return rejected
	case isWord(r):
		return m.state(out, 'a')
	default:
		return m.state(out, ' ')
	}
}

// state returns the state of a set of instructions. There is only one for each set.
func (m *machine) state(insts []uint32, prev rune) *state {
	slices.Sort(insts)
	insts = slices.Compact(insts)
	key := binary.AppendVarint(nil, int64(prev))
	for _, pc := range insts {
		key = binary.AppendUvarint(key, uint64(pc))
	}
	s := m.states[string(key)]
	if s == nil {
		if m.size > maxMemory {
			m.forget()
		}
		s = &state{insts: insts, prev: prev, next: make([]*state, len(m.classes)+1)}
		m.size += len(key) + 4*len(s.insts) + 8*len(s.next)
		m.states[string(key)] = s
	}
	m.spent += len(insts)
	return s
}
