package recordcmd

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"time"

	"github.com/sandboxbash/sandboxbash/sink"
)

// style is for light and dark screens, for phones and for paper.
const style = `:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#60646c;--line:#d9d9e0;--box:#f6f7f9;--bad:#b3121d;--good:#1a6e3c;--mark:#0b5cad}
@media (prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#e6e8eb;--dim:#9ba1a8;--line:#33373e;--box:#1c1f24;--bad:#ff8f87;--good:#6fd08c;--mark:#8ec5ff}}
*{box-sizing:border-box}body{margin:0 auto;max-width:64rem;padding:1rem;background:var(--bg);color:var(--fg);font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.3rem;margin:.5rem 0}p{margin:.3rem 0}.dim,time{color:var(--dim)}pre,code{font:.85rem/1.45 ui-monospace,monospace}
ol{list-style:none;padding:0}li{border-top:1px solid var(--line);padding:.4rem 0}
summary{cursor:pointer;display:flex;flex-wrap:wrap;gap:.3rem .7rem;align-items:baseline;padding:.15rem .3rem}
summary code{flex:1 1 14rem;white-space:pre-wrap;overflow-wrap:anywhere;font-weight:600}
summary:focus-visible,pre:focus-visible{outline:3px solid var(--mark);outline-offset:1px}
pre{margin:.4rem 0;padding:.6rem;background:var(--box);border:1px solid var(--line);border-radius:4px;overflow:auto;max-height:34rem;white-space:pre-wrap;overflow-wrap:anywhere}
.bad{color:var(--bad)}.good{color:var(--good)}.note{color:var(--dim);font-style:italic;overflow-wrap:anywhere;padding:.15rem .3rem}
@media print{pre{max-height:none}}`

// script moves between commands by the keys j and k, and opens and closes all by e. The page is whole without it.
const script = `addEventListener("keydown",e=>{if(e.ctrlKey||e.metaKey||e.altKey)return;const s=[...document.querySelectorAll("summary")];if(!s.length)return;
const i=s.indexOf(document.activeElement);if(e.key==="j")s[Math.min(i+1,s.length-1)].focus();else if(e.key==="k")s[Math.max(i-1,0)].focus();
else if(e.key==="e"){const d=[...document.querySelectorAll("details")];const open=d.some(x=>!x.open);d.forEach(x=>x.open=open)}})`

// page writes HTML. All text goes through text, which escapes it.
type page struct {
	out     *bufio.Writer
	secrets *sink.Secrets
}

// markup writes what this program says itself.
func (p *page) markup(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

// text writes what others say: it is never markup, also in an attribute with double quotes.
func (p *page) text(text string) { _, _ = p.out.WriteString(html.EscapeString(text)) }

// writeHTML writes one page that needs nothing else: no server, no other file, no network. Its policy forbids it to
// load anything and to run any script but its own.
func writeHTML(w io.Writer, rec *recording, secrets *sink.Secrets) error {
	p := &page{out: bufio.NewWriter(w), secrets: secrets}
	sum := sha256.Sum256([]byte(script))
	p.markup("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
	p.markup("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'\">\n", base64.StdEncoding.EncodeToString(sum[:]))
	p.markup("<title>")
	p.text(oneLine(rec.title(), secrets))
	p.markup("</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n<h1>What was run in ", style)
	p.text(oneLine(rec.title(), secrets))
	p.markup("</h1>\n<p class=\"dim\">")
	p.text(rec.session.ID)
	if rec.session.Image != "" {
		p.text(", image " + oneLine(rec.session.Image, secrets))
	}
	p.markup("</p>\n<p class=\"dim\">Keys: j and k go to the next and the previous command, Enter opens and closes it, e does so for all.</p>\n<ol>\n")
	for _, i := range rec.items {
		p.item(i)
	}
	p.markup("</ol>\n</main>\n<script>%s</script>\n</body>\n</html>\n", script)
	return p.out.Flush()
}

func (p *page) item(i *item) {
	if !i.isCommand() {
		text := i.about()
		if text == "" {
			return
		}
		if i.isTransfer() {
			text += " [" + i.outcome() + "]"
		}
		p.markup("<li class=\"note\">")
		p.time(i.Time)
		p.text(" " + oneLine(text, p.secrets))
		p.markup("</li>\n")
		return
	}
	open, class, mark := "", "good", "✔"
	switch {
	case i.failed():
		open, class, mark = " open", "bad", "✘"
	case i.ending() == nil:
		class, mark = "dim", "…"
	}
	p.markup("<li><details%s><summary><span class=\"%s\" aria-hidden=\"true\">%s</span>", open, class, mark)
	p.time(i.Time)
	p.markup("<code>")
	p.text(cleanText(i.Command, p.secrets))
	p.markup("</code><span class=\"%s\">", class)
	p.text(oneLine(i.outcome(), p.secrets))
	p.markup("</span></summary>\n")
	if i.Dir != "" {
		p.markup("<p class=\"note\">in ")
		p.text(oneLine(i.Dir, p.secrets))
		p.markup("</p>\n")
	}
	parts := i.parts(p.secrets)
	if len(parts) == 0 {
		p.markup("<p class=\"note\">No output.</p>\n")
	}
	for _, part := range parts {
		if part.skipped > 0 {
			p.markup("<p class=\"note\">%s</p>\n", leftOut(part.skipped))
			continue
		}
		p.markup("<pre tabindex=\"0\">")
		p.text(part.text)
		p.markup("</pre>\n")
	}
	p.markup("</details></li>\n")
}

func (p *page) time(t time.Time) {
	p.markup("<time datetime=\"%s\">%s</time>", t.UTC().Format(time.RFC3339), t.Local().Format(time.TimeOnly))
}
