package web

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a real browser.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp's handle of a tab
	errs []string        // what the page's script has complained about
}

// open opens an address in a headless Chromium. Without one the test is skipped, but not where CI runs.
func open(t *testing.T, address string) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no chromium: .ci/run installs it")
		}
		t.Skip("needs chromium, of Debian's package of that name")
	}
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {})) // events that are newer than it
	t.Cleanup(cancelTab)
	timed, stop := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: timed}
	chromedp.ListenTarget(timed, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.errs = append(b.errs, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				b.errs = append(b.errs, string(e.Args[0].Value))
			}
		}
	})
	b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(address))
	t.Cleanup(func() {
		if len(b.errs) > 0 {
			t.Errorf("the page's script complains: %q", b.errs)
		}
	})
	return b
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// until waits until an expression of the page's is true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	var is bool
	if err := chromedp.Run(b.ctx, chromedp.Poll(expression, &is, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(30*time.Second))); err != nil {
		var body string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body.innerText`, &body))
		b.t.Fatalf("not seen: %s: %v; the page:\n%s", what, err, body)
	}
}

func (b *browser) text(id string) (text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`document.getElementById('`+id+`').innerText`, &text))
	return text
}

// shoot keeps a picture of the page.
func (b *browser) shoot(name string) {
	b.t.Helper()
	var png []byte
	b.do(chromedp.Sleep(150*time.Millisecond), chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o644); err != nil { //nolint:gosec // a picture for everyone
		b.t.Fatal(err)
	}
}

func scheme(dark bool) chromedp.Action {
	value := map[bool]string{true: "dark", false: "light"}[dark]
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}})
}

func (s *stage) address(rest string) string {
	return "http://" + s.addr + "/#" + rest + "token=" + token
}

func TestPageShowsSessions(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.scene()
	b := open(t, s.address("/session/"+webID+"?"))
	b.until("what runs", `document.getElementById('log').innerText.includes('make image') && document.getElementById('log').innerText.includes('60%')`)
	b.until("the list", `document.querySelectorAll('#list .row').length === 3`)

	log := b.text("log")
	for _, want := range []string{"go test ./...", "FAIL\texample.com/web/server", "exit 1 after 1.3 s", "denied by pipe-to-shell", "<img src=x onerror=alert(1)>", "red", "goes on as job bg_1", "push /home/ann/web"} {
		if !strings.Contains(log, want) {
			t.Errorf("the output lacks %q:\n%s", want, log)
		}
	}
	for _, wrong := range []string{"40%", "pwned", "\x1b"} {
		if strings.Contains(log, wrong) {
			t.Errorf("the output has %q:\n%s", wrong, log)
		}
	}
	var images int
	var hash, title string
	b.do(chromedp.Evaluate(`document.querySelectorAll('#log img, #log script').length`, &images),
		chromedp.Evaluate(`location.hash`, &hash), chromedp.Title(&title))
	if images != 0 {
		t.Error("output has become markup")
	}
	if hash != "#/session/"+webID {
		t.Errorf("the address has %q; want it without the token", hash)
	}
	if title != "web · sandboxbash" {
		t.Errorf("title %q", title)
	}
	b.shoot("output-light")
	b.do(scheme(true))
	b.shoot("output-dark")

	for _, view := range []struct{ name, key, is, want string }{
		{"terminals", "2", `document.querySelector('#terminals pre')?.textContent.includes('"server/handler.go" 214L')`, "vi server/handler.go"},
		{"jobs", "3", `document.querySelectorAll('#jobs tbody tr').length === 1`, "npm run dev"},
		{"network", "4", `document.querySelectorAll('#network tbody tr').length === 2`, "telemetry.example.com:443 ×3"},
		{"changes", "5", `document.querySelectorAll('#changes .files li').length === 3`, "server/handler.go (changed on this machine, too)"},
	} {
		b.do(chromedp.KeyEvent(view.key))
		b.until(view.name, view.is)
		if text := b.text("panel-" + view.name); !strings.Contains(text, view.want) {
			t.Errorf("%s: %q; want %q in it", view.name, text, view.want)
		}
		b.do(scheme(false))
		b.shoot(view.name + "-light")
		b.do(scheme(true))
		b.shoot(view.name + "-dark")
	}

	b.do(chromedp.Reload()) // the token is this tab's
	b.until("the same view again", `location.hash.endsWith('/changes') && document.querySelectorAll('#changes .files li').length === 3`)
	b.do(chromedp.Evaluate(`location.hash = '#/session/`+webID+`/output/c2'`, nil))
	b.until("the command that the address names", `document.querySelector('.cmd.aim h3')?.textContent === 'go test ./...'`)
	b.do(chromedp.Evaluate(`location.hash = '#/session/`+apiID+`'`, nil))
	b.until("another session", `document.getElementById('log').innerText.includes('Finished dev') && !document.getElementById('log').innerText.includes('make image')`)
}

func TestPageIsLive(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.scene()
	b := open(t, s.address("/session/"+webID+"&"))
	b.until("what runs", `document.getElementById('log').innerText.includes('60%')`)
	s.w.Output(webID, "c9", journalStdout, []byte("\r100%\nlayer 2\n"))
	b.until("more output", `document.getElementById('log').innerText.includes('100%\nlayer 2') && !document.getElementById('log').innerText.includes('60%')`)
	s.end(webID, "c9", 2)
	b.until("its end", `[...document.querySelectorAll('.cmd footer')].at(-1).innerText.startsWith('exit 2 after')`)
	b.until("the end, told", `document.getElementById('status').textContent.startsWith('make image: exit 2')`)
	b.until("the end in the list", `document.querySelector('#list [aria-current]').innerText.includes('exit 2')`)
}

func TestPageOnAPhone(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.scene()
	b := open(t, "about:blank")
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateScale(2)), chromedp.Navigate(s.address("/?")))
	b.until("the list", `document.querySelectorAll('#list .row').length === 3 && document.querySelector('#list .row').innerText.length > 0`)
	b.until("the last command", `document.getElementById('list').innerText.includes('make image')`)
	b.shoot("phone-list")
	b.do(chromedp.Evaluate(`[...document.querySelectorAll('#list .row')].find((r) => r.innerText.startsWith('web')).click()`, nil))
	b.until("the session", `document.getElementById('log').innerText.includes('make image') && getComputedStyle(document.getElementById('nav')).display === 'none'`)
	b.shoot("phone-session")
	for _, view := range []string{"terminals", "jobs", "network", "changes", "output"} {
		b.do(chromedp.Evaluate(`document.getElementById('tab-`+view+`').click()`, nil))
		b.until(view, `!document.getElementById('panel-`+view+`').hidden`)
		var wide bool
		b.do(chromedp.Sleep(100*time.Millisecond), chromedp.Evaluate(`document.documentElement.scrollWidth > 390 || document.getElementById('panel-`+view+`').scrollWidth > document.getElementById('panel-`+view+`').clientWidth`, &wide))
		if wide {
			t.Errorf("%s is wider than a phone", view)
		}
		b.shoot("phone-" + view)
	}
	b.do(chromedp.Click(`.back`))
	b.until("the list again", `getComputedStyle(document.getElementById('nav')).display !== 'none'`)
}

func TestPageWantsItsToken(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.scene()
	b := open(t, "http://"+s.addr+"/#/session/"+webID)
	b.until("the question", `!document.getElementById('enter').hidden && document.activeElement.id === 'token'`)
	b.shoot("token")
	b.do(chromedp.SendKeys(`#token`, "wrong-token\r"))
	b.until("the refusal", `document.getElementById('enter-why').textContent.includes('not the one')`)
	b.do(chromedp.SendKeys(`#token`, s.address("/?")+"\r"))
	b.until("the session", `document.getElementById('log').innerText.includes('make image')`)
}

func TestPageAsksBeforeItDoes(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.scene()
	b := open(t, s.address("/session/"+webID+"?"))
	b.until("the session", `document.getElementById('facts').innerText.includes('debian')`)
	b.until("no way to do anything", `document.getElementById('actions').hidden && document.getElementById('mode').textContent === 'read-only'`)

	did := &controller{}
	c := newStage(t, func(o *Options) { o.Control = did })
	c.scene()
	b = open(t, c.address("/session/"+webID+"?"))
	b.until("the buttons", `!document.getElementById('actions').hidden && document.getElementById('log').innerText.includes('make image')`)
	b.shoot("control")
	b.do(chromedp.Click(`#do-stop`))
	b.until("the question", `document.getElementById('ask').open && document.activeElement.id === 'ask-no'`)
	b.until("what it would do", `document.getElementById('ask-text').textContent.startsWith('3 commands')`)
	b.shoot("ask-stop")
	b.do(chromedp.Click(`#ask-no`))
	b.until("no question", `!document.getElementById('ask').open`)
	if got := did.orders(); len(got) != 0 {
		t.Fatalf("done without a yes: %q", got)
	}
	b.do(chromedp.Click(`#do-allow`), chromedp.SendKeys(`#ask-input`, "bad rule\r"))
	b.until("what is wrong", `document.getElementById('ask-said').textContent === 'rule 1: a host has no space'`)
	b.do(chromedp.SetValue(`#ask-input`, "pypi.org"), chromedp.Click(`#ask-yes`))
	b.until("done", `document.getElementById('ask-said').textContent === 'web may reach pypi.org'`)
	b.do(chromedp.Click(`#ask-no`), chromedp.Click(`#do-apply`))
	b.until("the files", `document.querySelectorAll('#ask-more li').length === 3`)
	b.shoot("ask-apply")
	b.do(chromedp.Click(`#ask-yes`))
	b.until("applied", `document.getElementById('ask-said').textContent.startsWith('applied 3')`)
	b.do(chromedp.Click(`#ask-no`), chromedp.Click(`#do-stop`), chromedp.Click(`#ask-yes`))
	b.until("stopped", `document.getElementById('ask-said').textContent === 'stopped web'`)
	want := []string{"allow " + webID + " bad rule", "allow " + webID + " pypi.org", "apply " + webID, "stop " + webID}
	if got := did.orders(); !slices.Equal(got, want) {
		t.Errorf("orders %q; want %q", got, want)
	}
}

// A screen reader gets landmarks, names and states, and each control has a name.
func TestPageIsAccessible(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *Options) { o.Control = &controller{} })
	s.scene()
	b := open(t, s.address("/session/"+webID+"?"))
	b.until("the session", `document.getElementById('log').innerText.includes('make image')`)
	type text struct {
		Value any `json:"value"`
	}
	var tree struct { // cdproto's own type refuses words that are newer than it
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    text `json:"role"`
			Name    text `json:"name"`
		} `json:"nodes"`
	}
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, nil, &tree)
	}))
	has := map[string]bool{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role, name := fmt.Sprint(n.Role.Value), fmt.Sprint(n.Name.Value)
		if n.Name.Value == nil {
			name = ""
		}
		has[role] = true
		has[role+" "+name] = true
		if slices.Contains([]string{"button", "link", "tab", "textbox", "searchbox"}, role) && name == "" {
			t.Errorf("a %s has no name", role)
		}
	}
	for _, want := range []string{"banner", "navigation Sessions", "main", "tablist Views of the session", "tab Output", "log Commands and their output", "searchbox Filter sessions by name, image or command", "heading web", "status"} {
		if !has[want] {
			t.Errorf("there is no %s; there are %v", want, has)
		}
	}
	b.do(chromedp.Evaluate(`document.getElementById('tab-output').focus()`, nil))
	for _, view := range []string{"terminals", "jobs"} {
		b.do(chromedp.Evaluate(`document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))`, nil))
		b.until("the next tab has the focus", `document.activeElement.id === 'tab-`+view+`' && document.activeElement.getAttribute('aria-selected') === 'true'`)
	}
	for _, dark := range []bool{false, true} {
		b.do(scheme(dark))
		var low []string
		b.do(chromedp.Evaluate(contrastJS, &low))
		if len(low) > 0 {
			t.Errorf("dark %v: contrast below 4.5: %q", dark, low)
		}
	}
}

// contrastJS returns texts whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3).
const contrastJS = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); if (c.startsWith('color(srgb')) { m[0]*=255; m[1]*=255; m[2]*=255; } return m.length < 4 ? [...m, 1] : m; };
  const lum = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const back = (e) => { const layers = []; for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) layers.push(c); if (c[3] === 1) break; } let under = [255, 255, 255]; for (const l of layers.reverse()) under = over(l, under); return under; };
  const low = new Set();
  for (const view of ['output', 'terminals', 'jobs', 'network']) {
    document.getElementById('tab-' + view).click();
    location.hash = '#/session/` + webID + `/' + view;
    window.dispatchEvent(new HashChangeEvent('hashchange'));
    for (const e of document.querySelectorAll('body *')) {
      if (!e.checkVisibility() || e.closest('.sr, .skip') || e.disabled || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
      const b = back(e), t = over(parse(getComputedStyle(e).color), b);
      const [x, y] = [lum(b), lum(t)].sort((p, q) => q - p);
      const ratio = (x + .05) / (y + .05);
      if (ratio < 4.5) low.add(e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
    }
  }
  return [...low];
})()`

// After much output the page is still small.
func TestPageStaysSmall(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	b := open(t, s.address("/session/"+webID+"?"))
	s.begin(webID, "big", "yes")
	line := strings.Repeat("0123456789abcdef", 8) + "\n"
	const total = 64 << 20
	piece := []byte(strings.Repeat(line, (64<<10)/len(line)))
	for sent := 0; sent < total; sent += len(piece) {
		s.w.Output(webID, "big", journalStdout, piece)
		if sent%(1<<20) < len(piece) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	s.end(webID, "big", 0)
	b.until("the end", `[...document.querySelectorAll('.cmd footer')].at(-1)?.innerText.startsWith('exit 0')`)
	heap, nodes := b.memory()
	t.Logf("after %d MiB: heap %.1f MB, %.0f nodes", total>>20, heap/1e6, nodes)
	if heap > 50e6 {
		t.Errorf("the page uses %.1f MB; want at most 50", heap/1e6)
	}
}

// memory returns the bytes of the page's script heap, after a collection, and how many nodes there are.
func (b *browser) memory() (heap, nodes float64) {
	b.t.Helper()
	var metrics []*performance.Metric
	b.do(performance.Enable(), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		if err := runtime.Enable().Do(ctx); err != nil {
			return err
		}
		if _, _, err := runtime.Evaluate("window.gc && gc()").Do(ctx); err != nil {
			return err
		}
		metrics, err = performance.GetMetrics().Do(ctx)
		return err
	}))
	for _, m := range metrics {
		switch m.Name {
		case "JSHeapUsedSize":
			heap = m.Value
		case "Nodes":
			nodes = m.Value
		}
	}
	return heap, nodes
}
