package sink

import "strings"

// A Filter shortens a text that is shown without changing what it says. It returns the
// text unchanged if there is nothing to remove.
type Filter func(text string) string

// minimize applies the filters to the text that is shown, if the original can be stored.
func (s *Sink) minimize(o *Output) {
	if len(s.opts.Minimize) == 0 || o.Truncated() {
		return
	}
	short := []string{o.Stdout.Head, o.Stderr.Head}
	for _, f := range s.opts.Minimize {
		short[0], short[1] = f(short[0]), f(short[1])
	}
	if short[0] == o.Stdout.Head && short[1] == o.Stderr.Head || !s.spill.keepOriginal(o.Artifact) {
		return
	}
	o.Minimized = true
	streams := []*Stream{&o.Stdout, &o.Stderr}
	for i, st := range streams {
		if short[i] != st.Head {
			st.Head = withFooter(short[i], s.spill.id)
		}
	}
}

func withFooter(text, id string) string {
	if text == "" {
		text = "OK"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "[raw output: artifact://" + id + "]\n"
}
