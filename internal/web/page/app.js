'use strict';
// What sessions print becomes text nodes, never markup: there is no innerHTML in this file, and the policy of the page
// would refuse it.

const $ = (id) => document.getElementById(id);

// el makes an element. Children that are strings become text.
function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k === 'class') e.className = v;
    else if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// ---- bounds of what the page keeps ------------------------------------------------------------------------------
const MAX_CHARS = 3_000_000;  // of output, in all
const MAX_BLOCK = 1_000_000;  // of one command
const MAX_BLOCKS = 1500;
const NODE = 16_384;          // characters of one text node
const MAX_NETWORK = 500;      // rows

const VIEWS = ['output', 'terminals', 'jobs', 'network', 'changes'];
const state = {
  token: '', control: false, canCompare: true, skew: 0,
  sessions: new Map(), at: '', view: 'output', aim: '',
  blocks: new Map(), chars: 0, following: true, network: [], terminals: new Map(), order: [],
  typing: '', compared: '', seen: false,
};

// ---- the token ---------------------------------------------------------------------------------------------------
// The address that is printed is http://…/#token=…  The token goes into this tab's own storage, and out of the address:
// so it is in no history, bookmark or screenshot.
function takeToken() {
  const hash = location.hash;
  const m = /^#\/?(.*?)[?&]?token=([\w~.-]+)$/.exec(hash);
  if (m) {
    sessionStorage.setItem('token', m[2]);
    history.replaceState(null, '', '#/' + m[1].replace(/^\//, ''));
  }
  state.token = sessionStorage.getItem('token') || '';
}

function askToken(why) {
  $('enter-why').textContent = why;
  $('enter').hidden = false;
  $('welcome').hidden = $('session').hidden = true;
  $('main').className = 'enter';
  $('token').focus();
}

$('enter-form').addEventListener('submit', (e) => {
  e.preventDefault();
  const m = /(?:token=)?([\w~.-]+)$/.exec($('token').value.trim());
  if (!m) return;
  sessionStorage.setItem('token', m[1]);
  state.token = m[1];
  $('token').value = '';
  $('enter').hidden = true;
  $('main').className = '';
  stream = null; // a new one begins
  route();
});

const headers = () => ({ Authorization: 'Bearer ' + state.token });

// ---- the stream of events ----------------------------------------------------------------------------------------
let stream = null;
let retry = 500;

function live(word, text) {
  if ($('live').dataset.state === word) return;
  $('live').dataset.state = word;
  $('live-text').textContent = text;
  if (word === 'off') say('The connection to sandboxbash is lost. It is tried again.');
}

async function connect() {
  if (stream) stream.abort();
  if (!state.token) {
    askToken('Open the address that `sandboxbash serve web` has printed, or paste it here.');
    return;
  }
  const mine = stream = new AbortController();
  try {
    const q = state.at ? '?session=' + encodeURIComponent(state.at) : '';
    const answer = await fetch('/api/events' + q, { headers: headers(), signal: mine.signal, cache: 'no-store' });
    if (answer.status === 401) {
      sessionStorage.removeItem('token');
      state.token = '';
      live('off', 'no access');
      askToken('This token is not the one of the `sandboxbash serve web` that runs now. Open the address that it has printed, or paste it here.');
      return;
    }
    if (!answer.ok) throw new Error(await answer.text());
    await read(answer.body, mine);
  } catch (err) {
    if (mine !== stream) return;
    problem(err instanceof TypeError ? '' : String(err.message || err));
  }
  if (mine !== stream) return;
  live('off', 'disconnected');
  const again = () => { if (mine === stream) connect(); };
  if (document.hidden) {
    document.addEventListener('visibilitychange', again, { once: true });
  } else {
    setTimeout(again, retry);
    retry = Math.min(retry * 2, 8000);
  }
}

// read takes server-sent events off a stream.
async function read(body, mine) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done || mine !== stream) return;
    // An event ends with an empty line. What has no end yet is kept in pieces: one event may come in many.
    let rest = value;
    if (rest[0] === '\n' && parts.length && parts[parts.length - 1].endsWith('\n')) rest = parts.pop() + rest;
    for (;;) {
      const end = rest.indexOf('\n\n');
      if (end < 0) break;
      event(parts.join('') + rest.slice(0, end));
      parts = [];
      rest = rest.slice(end + 2);
    }
    if (rest) parts.push(rest);
  }
}

function event(text) {
  let name = '', data = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7);
    if (line.startsWith('data: ')) data += line.slice(6);
  }
  const v = JSON.parse(data);
  if (name === 'hello') hello(v);
  if (name === 'update') update(v);
}

function hello(v) {
  retry = 500;
  live('on', 'live');
  problem('');
  state.control = v.control;
  state.canCompare = v.changes;
  state.skew = Date.parse(v.now) - Date.now();
  $('mode').hidden = false;
  $('mode').textContent = v.control ? 'can control' : 'read-only';
  $('mode').classList.toggle('can', v.control);
  state.sessions.clear();
  clearDetail();
}

function update(v) {
  if (v.problem !== undefined) problem(v.problem);
  if (v.sessions) {
    for (const s of v.sessions) state.sessions.set(s.id, s);
    renderList();
    if (state.sessions.has(state.at)) renderHead();
    if (v.sessions.some((s) => s.id === state.at)) renderJobs();
  }
  if (v.detail && v.detail.session === state.at) detail(v.detail);
  document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
  tick();
}

function problem(text) {
  const p = $('problem');
  if (p.textContent !== text) p.textContent = text;
  p.hidden = !text;
}

// ---- words -------------------------------------------------------------------------------------------------------
const now = () => Date.now() + state.skew;

function ago(t) {
  if (!t) return '';
  const s = Math.max(0, (now() - Date.parse(t)) / 1000);
  if (s < 60) return Math.floor(s) + 's';
  if (s < 3600) return Math.floor(s / 60) + 'm';
  if (s < 172800) return Math.floor(s / 3600) + 'h';
  return Math.floor(s / 86400) + 'd';
}

function took(ms) {
  if (ms < 1000) return ms + ' ms';
  if (ms < 60_000) return (ms / 1000).toFixed(1) + ' s';
  const m = Math.floor(ms / 60_000);
  if (m < 60) return m + ' min ' + Math.floor(ms % 60_000 / 1000) + ' s';
  return Math.floor(m / 60) + ' h ' + m % 60 + ' min';
}

function bytes(n) {
  if (n < 1000) return n + ' B';
  const u = ['kB', 'MB', 'GB', 'TB'];
  let i = -1;
  do { n /= 1000; i++; } while (n >= 1000 && i < 3);
  return n.toFixed(n < 10 ? 1 : 0) + ' ' + u[i];
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const when = (t) => el('time', { datetime: t, title: full.format(new Date(t)) }, clock.format(new Date(t)));

// say tells a screen reader, at most every three seconds; what came last wins.
let toSay = '', saying = null;
function say(text) {
  toSay = text;
  if (saying) return;
  $('status').textContent = text;
  saying = setTimeout(() => {
    saying = null;
    if (toSay !== text) say(toSay);
  }, 3000);
}

// ---- the list of sessions ----------------------------------------------------------------------------------------
const RANK = { running: 0, paused: 1, idle: 2, unknown: 2, kept: 3, stopped: 3 };
const rows = new Map(); // id → what a row is made of

function sorted() {
  const words = $('filter').value.trim().toLowerCase();
  const has = (s) => !words || [s.name, s.id, s.image, s.last, s.workspace, s.state].some((t) => t && t.toLowerCase().includes(words));
  // Sessions keep their places while they work: those that have ended go to the end, the rest is by start.
  return [...state.sessions.values()].filter(has).sort((a, b) =>
    (RANK[a.state] > 2) - (RANK[b.state] > 2) || (b.created || '').localeCompare(a.created || '') || a.id.localeCompare(b.id));
}

function newRow(id) {
  const r = {
    nm: el('span', { class: 'nm' }), ag: el('span', { class: 'ag' }), st: el('span', { class: 'state' }), cm: el('span', { class: 'cm' }), end: el('span', {}),
  };
  r.a = el('a', { class: 'row', href: '#/session/' + encodeURIComponent(id) },
    el('span', { class: 'l1' }, r.nm, r.st, r.ag), el('span', { class: 'l2' }, r.cm, r.end));
  r.li = el('li', {}, r.a);
  return r;
}

const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const cls = (node, name) => { if (node.className !== name) node.className = name; };

function renderList() {
  const list = sorted();
  const ul = $('list');
  for (const [id, r] of rows) {
    if (!state.sessions.has(id)) { r.li.remove(); rows.delete(id); }
  }
  let before = ul.firstChild;
  for (const s of list) {
    let r = rows.get(s.id);
    if (!r) rows.set(s.id, r = newRow(s.id));
    set(r.nm, s.name);
    set(r.ag, ago(s.active));
    set(r.st, s.state);
    cls(r.st, 'state ' + s.state);
    set(r.cm, s.last || (s.noJournal ? 'no journal' : 'no command yet'));
    set(r.end, s.last ? (s.lastEnd || 'runs') : '');
    cls(r.end, s.lastTone || '');
    if (s.id === state.at) r.a.setAttribute('aria-current', 'page'); else r.a.removeAttribute('aria-current');
    if (before === r.li) before = before.nextSibling; else ul.insertBefore(r.li, before);
  }
  while (before) { const next = before.nextSibling; before.remove(); before = next; }
  const running = list.filter((s) => s.state === 'running').length;
  set($('count'), list.length + (list.length === 1 ? ' session' : ' sessions') + (running ? ', ' + running + ' running' : ''));
  $('none').hidden = list.length > 0;
  set($('none'), state.sessions.size ? 'No session matches.' : 'No session has a journal yet. Start one with `sandboxbash session start`.');
}

$('filter').addEventListener('input', renderList);

// ---- the head of a session ---------------------------------------------------------------------------------------
function renderHead() {
  const s = state.sessions.get(state.at);
  if (!s) return;
  set($('name'), s.name);
  set($('state'), s.state);
  cls($('state'), 'state ' + s.state);
  document.title = s.name + ' · sandboxbash';
  const facts = [];
  const fact = (name, value) => { if (value) facts.push(el('span', {}, name + ' ', el('b', {}, String(value)))); };
  fact('image', s.image);
  fact('profile', s.profile);
  fact('network', s.network);
  fact('workspace', s.workspace);
  if (s.commands) fact('commands', s.commands + (s.failed ? ', ' + s.failed + ' failed' : ''));
  if (s.denied) fact('denied', s.denied);
  if (s.refused) fact('refused connections', s.refused);
  fact('id', s.id.slice(0, 13));
  $('facts').replaceChildren(...facts);
  $('actions').hidden = !state.control || s.state === 'stopped';
  $('do-attach').disabled = $('do-allow').disabled = s.state === 'kept';
  const jobs = (s.jobs || []).filter((j) => !j.ended).length;
  set($('n-jobs'), jobs ? String(jobs) : '');
}

// ---- output ------------------------------------------------------------------------------------------------------
function clearDetail() {
  state.blocks.clear();
  state.chars = 0;
  state.network = [];
  state.terminals.clear();
  state.order = [];
  state.seen = false;
  $('log').replaceChildren();
  $('terminals').replaceChildren();
  screens.clear();
  renderNetwork();
  renderTerminals();
}

function detail(d) {
  if (d.reset) clearDetail();
  if (d.gap) {
    const text = d.reset ? 'What was before is not shown here.' : 'This page was too slow for some of the output. It goes on here.';
    $('log').append(el('p', { class: 'note ' + (d.reset ? '' : 'warning') }, text));
  }
  for (const i of d.items || []) item(i);
  if (d.network) {
    state.network.push(...d.network);
    if (state.network.length > MAX_NETWORK) state.network.splice(0, state.network.length - MAX_NETWORK);
    renderNetwork();
  }
  if (d.order) state.order = d.order;
  for (const t of d.terminals || []) state.terminals.set(t.id, t);
  if (d.terminals || d.order) renderTerminals();
  trim();
  aim();
  if (state.following) toEnd();
  state.seen = true;
}

function block(i) {
  let b = state.blocks.get(i.id);
  if (b) return b;
  b = { pre: el('pre', {}), foot: el('footer', {}), chars: 0, node: null, tail: null, err: false, since: '' };
  const h = el('h3', {}, i.k === 'command' || i.k === 'denied' ? i.text : '(its start is not shown here)');
  const link = el('a', { class: 'at', href: '#/session/' + encodeURIComponent(state.at) + '/output/' + encodeURIComponent(i.id) }, when(i.t));
  b.el = el('section', { class: 'cmd', id: 'c-' + i.id }, el('header', {}, el('span', { class: 'p', 'aria-hidden': 'true' }, i.mode === 'push' || i.mode === 'pull' ? '⇅' : '$'), h, link), b.pre, b.foot);
  b.title = h.textContent;
  state.blocks.set(i.id, b);
  $('log').append(b.el);
  return b;
}

function item(i) {
  switch (i.k) {
    case 'command': {
      const b = block(i);
      b.since = i.t;
      b.foot.replaceChildren(el('span', { class: 'runs', 'data-since': i.t }, 'runs'), i.dir ? ' in ' + i.dir : '');
      if (i.mode === 'terminal') b.foot.append(' on a terminal');
      break;
    }
    case 'denied':
      block(i);
      break;
    case 'output':
      output(block(i), i);
      break;
    case 'end': {
      const b = block(i);
      b.foot.replaceChildren(el('span', { class: 'went ' + (i.tone || '') }, i.text), i.ms ? ' after ' + took(i.ms) : '');
      if (state.seen) say(b.title.slice(0, 80) + ': ' + i.text + (i.ms ? ' after ' + took(i.ms) : ''));
      break;
    }
    case 'job':
      if (state.seen) say(i.text);
      // falls through
    default:
      $('log').append(el('p', { class: 'note ' + (i.tone || '') }, i.text));
  }
}

// output adds text to a command. The line that has not ended is a node of its own, which progress replaces.
function output(b, i) {
  const err = Boolean(i.err);
  if (b.err !== err) { b.node = b.tail = null; b.err = err; }
  if (i.rewind && b.tail) { count(b, -b.tail.length); b.tail.data = ''; }
  let text = i.text || '';
  if (!text) return;
  count(b, text.length);
  const at = text.lastIndexOf('\n') + 1;
  if (at > 0) {
    if (b.tail) { text = b.tail.data + text; b.tail.data = ''; }
    const end = text.lastIndexOf('\n') + 1;
    lines(b, text.slice(0, end));
    text = text.slice(end);
  }
  if (!text) return;
  if (!b.tail) b.tail = put(b, '');
  b.tail.appendData(text);
  if (b.tail.length > NODE) { b.node = null; b.tail = null; } // a line without an end
}

function put(b, text) {
  const node = document.createTextNode(text);
  b.pre.append(b.err ? el('span', { class: 'e' }, node) : node);
  return node;
}

function lines(b, text) {
  for (let from = 0; from < text.length; from += NODE) {
    const piece = text.slice(from, from + NODE);
    if (b.node && b.node.isConnected && b.node.length + piece.length <= NODE) { b.node.appendData(piece); continue; }
    b.node = document.createTextNode(piece);
    const holder = b.err ? el('span', { class: 'e' }, b.node) : b.node;
    const tail = b.tail && (b.err ? b.tail.parentNode : b.tail);
    if (tail && tail.isConnected) b.pre.insertBefore(holder, tail); else b.pre.append(holder);
  }
  while (b.chars > MAX_BLOCK && b.pre.childNodes.length > 2) drop(b);
}

function count(b, n) { b.chars += n; state.chars += n; }

// drop removes the oldest piece of a command's output, and says so.
function drop(b) {
  let first = b.pre.firstChild;
  if (!b.cut) {
    b.cut = el('span', { class: 'warning' }, '… earlier output is not shown here; the artifact has all of it\n');
    b.pre.prepend(b.cut);
  }
  if (first === b.cut) first = first.nextSibling;
  if (!first) return;
  count(b, -first.textContent.length);
  if (first === b.tail || first.contains(b.tail)) b.tail = null;
  if (first === b.node || first.contains(b.node)) b.node = null;
  first.remove();
}

// trim keeps the page small: the oldest goes first.
function trim() {
  const log = $('log');
  while ((state.chars > MAX_CHARS || log.childNodes.length > MAX_BLOCKS) && log.childNodes.length > 1) {
    const first = log.firstChild;
    for (const [id, b] of state.blocks) {
      if (b.el === first) { state.chars -= b.chars; state.blocks.delete(id); break; }
    }
    first.remove();
    if (!state.trimmed) state.trimmed = true;
  }
}

// aim shows the command that the address names.
function aim() {
  if (!state.aim) return;
  const b = state.blocks.get(state.aim);
  if (!b) return;
  for (const other of document.querySelectorAll('.cmd.aim')) other.classList.remove('aim');
  b.el.classList.add('aim');
  state.following = false;
  $('follow').hidden = false;
  b.el.scrollIntoView({ block: 'start' });
  state.aim = '';
}

const panel = $('panel-output');
let ours = false; // the next scroll is ours
function toEnd() {
  if (panel.hidden) return;
  ours = true;
  panel.scrollTop = panel.scrollHeight;
}
panel.addEventListener('scroll', () => {
  const atEnd = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 24;
  if (ours) { ours = false; if (!atEnd) return; }
  state.following = atEnd;
  $('follow').hidden = atEnd;
});
function follow() {
  state.following = true;
  $('follow').hidden = true;
  toEnd();
}
$('follow').addEventListener('click', follow);
new ResizeObserver(() => { if (state.following) toEnd(); }).observe(panel);

// ---- terminals ---------------------------------------------------------------------------------------------------
const screens = new Map(); // id → elements

function renderTerminals() {
  const live = state.order.filter((id) => state.terminals.has(id) && !state.terminals.get(id).end).length;
  set($('n-terminals'), live ? String(live) : '');
  const root = $('terminals');
  const ids = state.order.filter((id) => state.terminals.has(id));
  for (const [id, s] of screens) if (!ids.includes(id)) { s.el.remove(); screens.delete(id); }
  if (!ids.length) {
    if (!root.querySelector('.none')) root.replaceChildren(el('p', { class: 'empty none' }, 'No terminal is open in this session.'));
    return;
  }
  const none = root.querySelector('.none');
  if (none) none.remove();
  for (const id of ids) {
    let s = screens.get(id);
    if (!s) {
      s = { pre: el('pre', { 'aria-label': 'Screen' }), h: el('h3', {}), st: el('span', { class: 'quiet' }), tip: el('p', { class: 'tip', hidden: true }), type: el('button', { type: 'button' }, 'Type here') };
      s.type.addEventListener('click', () => typeInto(id));
      s.pre.addEventListener('keydown', (e) => keydown(id, e));
      s.pre.addEventListener('paste', (e) => paste(id, e));
      s.pre.addEventListener('blur', () => leave(id));
      s.el = el('section', { class: 'term' }, el('header', {}, s.h, s.st, s.type), s.pre, s.tip);
      screens.set(id, s);
    }
    const t = state.terminals.get(id);
    set(s.h, t.title || t.command || 'shell');
    set(s.st, (t.end ? t.end : 'runs') + ' · ' + t.cols + '×' + t.rows);
    cls(s.st, t.end ? 'quiet' : 'good');
    s.type.hidden = !(state.control && t.writable && !t.end);
    if (t.unseen) {
      s.pre.hidden = true;
      s.tip.hidden = false;
      set(s.tip, 'What this terminal shows is not recorded. `journal.terminals: true` in the configuration has terminals recorded from then on.');
    } else {
      s.pre.hidden = false;
      if (state.typing !== id) s.tip.hidden = true;
      screenOf(s.pre, t);
    }
    if (s.el.parentNode !== root) root.append(s.el);
  }
}

function screenOf(pre, t) {
  const c = t.cursor || {};
  const lines = [...(t.lines || [])];
  const parts = [];
  let text = '';
  lines.forEach((line, y) => {
    if (c.Visible && y === c.Row && !t.end) {
      const chars = [...line];
      while (chars.length <= c.Col) chars.push(' ');
      parts.push(text + chars.slice(0, c.Col).join(''), el('span', { class: 'cur' }, chars[c.Col]));
      text = chars.slice(c.Col + 1).join('') + '\n';
    } else {
      text += line + '\n';
    }
  });
  parts.push(text);
  pre.replaceChildren(...parts);
}

function typeInto(id) {
  const s = screens.get(id);
  state.typing = id;
  s.el.classList.add('typing');
  s.pre.tabIndex = 0;
  s.tip.hidden = false;
  set(s.tip, 'All keys go to this terminal. Ctrl+] lets go of it.');
  s.pre.focus();
  say('Typing into the terminal. Control and right bracket lets go of it.');
}

function leave(id) {
  const s = screens.get(id);
  if (state.typing !== id || !s) return;
  state.typing = '';
  s.el.classList.remove('typing');
  s.pre.removeAttribute('tabindex');
  s.tip.hidden = true;
}

const KEYS = {
  Enter: 'enter', Escape: 'esc', Backspace: 'backspace', Tab: 'tab', ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right',
  Home: 'home', End: 'end', PageUp: 'pageup', PageDown: 'pagedown', Delete: 'delete', Insert: 'insert',
};

function keydown(id, e) {
  if (state.typing !== id || e.isComposing) return;
  if (e.ctrlKey && e.key === ']') {
    e.preventDefault();
    screens.get(id).type.focus();
    return;
  }
  if (e.metaKey || (e.ctrlKey && e.shiftKey) || (e.ctrlKey && e.key === 'v')) return;
  let key = KEYS[e.key] || (/^F\d+$/.test(e.key) ? e.key.toLowerCase() : '');
  if (!key && [...e.key].length !== 1) return;
  e.preventDefault();
  if (!key && !e.ctrlKey && !e.altKey) { typed(id, { text: e.key }); return; }
  key = key || (e.key === ' ' ? 'space' : e.key.toLowerCase());
  if (e.shiftKey && KEYS[e.key]) key = 'shift-' + key;
  if (e.altKey) key = 'alt-' + key;
  if (e.ctrlKey) key = 'ctrl-' + key;
  typed(id, { keys: [key] });
}

function paste(id, e) {
  if (state.typing !== id) return;
  e.preventDefault();
  const text = e.clipboardData.getData('text');
  if (text) typed(id, { text });
}

// What is typed arrives in its order: one request at a time, with all that has been typed meanwhile.
let queue = [], sending = false;
async function typed(id, what) {
  const last = queue[queue.length - 1];
  if (last && last.terminal === id && last.text && what.text) last.text += what.text;
  else if (last && last.terminal === id && last.keys && what.keys) last.keys.push(...what.keys);
  else queue.push({ do: 'type', terminal: id, ...what });
  if (sending) return;
  sending = true;
  while (queue.length) {
    const one = queue.shift();
    const answer = await order(one);
    if (answer.error) { queue = []; say(answer.error); set(screens.get(id)?.tip || $('status'), answer.error); }
  }
  sending = false;
}

// ---- jobs and network --------------------------------------------------------------------------------------------
function table(caption, head, body) {
  return el('div', { class: 'scroll' }, el('table', {}, el('caption', {}, caption), el('thead', {}, el('tr', {}, ...head.map((h) => el('th', { scope: 'col' }, h)))), el('tbody', {}, ...body)));
}

function renderJobs() {
  const s = state.sessions.get(state.at);
  const jobs = (s && s.jobs) || [];
  if (!jobs.length) {
    $('jobs').replaceChildren(el('p', { class: 'empty' }, 'No command of this session goes on in the background.'));
    return;
  }
  $('jobs').replaceChildren(table('Commands that go on in the background. Their output is in the session: `sandboxbash job logs -f`.', ['Job', 'Command', 'Began', 'State'],
    [...jobs].reverse().map((j) => el('tr', {}, el('td', { class: 'm' }, j.id), el('td', { class: 'm' }, j.text), el('td', { class: 't' }, when(j.started)),
      el('td', {}, j.ended ? el('span', { class: j.tone || '' }, j.end) : el('span', { class: 'good' }, 'runs'), j.ended ? el('small', {}, 'after ' + took(Date.parse(j.ended) - Date.parse(j.started))) : null)))));
}

function renderNetwork() {
  const refused = state.network.filter((i) => i.net && !i.net.allowed).length;
  set($('n-network'), refused ? refused + ' refused' : '');
  if ($('panel-network').hidden) return;
  if (!state.network.length) {
    $('network').replaceChildren(el('p', { class: 'empty' }, 'This session has not tried to connect to anything.'));
    return;
  }
  $('network').replaceChildren(table('Connections, requests and refused names, the newest first.', ['Time', 'Verdict', 'To', 'Bytes out and in'],
    [...state.network].reverse().map((i) => {
      const c = i.net;
      const to = el('td', {}, el('span', { class: 'm' }, c.host + (c.port ? ':' + c.port : '') + (c.count > 1 ? ' ×' + c.count : '')));
      const about = [c.method && c.method + ' ' + (c.path || ''), c.status && String(c.status), i.text, c.why, c.rule && 'rule ' + c.rule, c.error].filter(Boolean).join(' · ');
      if (about) to.append(el('small', {}, about));
      if (state.control && !c.allowed && c.ask) {
        to.append(el('button', { type: 'button', onclick: () => allow(c.ask) }, 'Allow ' + c.ask));
      }
      return el('tr', {}, el('td', { class: 't' }, when(i.t)), el('td', {}, el('span', { class: c.allowed ? 'good' : 'bad' }, c.allowed ? 'allowed' : 'refused')), to,
        el('td', { class: 't' }, i.text ? '' : bytes(c.sent || 0) + ' / ' + bytes(c.received || 0)));
    })));
}

// ---- changes -----------------------------------------------------------------------------------------------------
const KIND = { added: ['added', 'good'], modified: ['modified', 'warning'], deleted: ['deleted', 'bad'], type: ['type', 'warning'] };

const files = (list) => el('ul', { class: 'files' }, ...list.map((f) => {
  const [word, tone] = KIND[f.kind] || [f.kind, ''];
  return el('li', {}, el('b', { class: tone }, word), f.path, f.both ? ' (changed on this machine, too)' : '');
}));

async function changesOf(session) {
  const answer = await fetch('/api/changes?session=' + encodeURIComponent(session), { headers: headers() });
  const text = await answer.text();
  let v;
  try { v = JSON.parse(text); } catch { throw new Error(text); }
  if (!answer.ok) throw new Error(v.error);
  return v;
}

async function compare() {
  const session = state.at;
  state.compared = session;
  $('compare').disabled = true;
  set($('compared'), 'comparing the workspace…');
  try {
    const c = await changesOf(session);
    if (session !== state.at) return;
    const list = c.files || [];
    set($('compared'), (list.length === 0 ? 'nothing has changed' : list.length === 1 ? '1 file has changed' : list.length + ' files have changed') + ' since ' + c.dir + ' was copied' + (c.repository ? '; .git: ' + c.repository : ''));
    const parts = [files(list)];
    if (c.patch) {
      const pre = el('pre', { class: 'diff', tabindex: '0', 'aria-label': 'The changed lines' });
      for (const line of c.patch.replace(/\n$/, '').split('\n')) {
        const k = line.startsWith('diff ') ? 'file' : line.startsWith('+++') || line.startsWith('---') || line.startsWith('@@') ? 'hunk' : line[0] === '+' ? 'add' : line[0] === '-' ? 'del' : '';
        pre.append(el('span', { class: k }, line || ' '));
      }
      parts.push(pre);
    }
    if (c.cut) parts.push(el('p', { class: 'tip' }, 'There is more: `sandboxbash session diff -u` shows all of it.'));
    $('changes').replaceChildren(...parts);
  } catch (err) {
    if (session !== state.at) return;
    $('changes').replaceChildren();
    set($('compared'), String(err.message || err));
  } finally {
    $('compare').disabled = false;
  }
}
$('compare').addEventListener('click', compare);

// ---- what can be done --------------------------------------------------------------------------------------------
async function order(o) {
  try {
    const answer = await fetch('/api/do', { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(o) });
    const text = await answer.text();
    try { return JSON.parse(text); } catch { return { error: text.replace(/^sandboxbash: /, '') }; }
  } catch (err) {
    return { error: 'sandboxbash does not answer: ' + err.message };
  }
}

// ask asks for a yes, and then does it.
function ask(o) {
  set($('ask-title'), o.title);
  set($('ask-text'), o.text);
  $('ask-more').replaceChildren(...(o.more ? [o.more] : []));
  set($('ask-yes'), o.yes);
  cls($('ask-yes'), o.danger ? 'danger' : 'primary');
  set($('ask-said'), '');
  $('ask-field').hidden = !o.field;
  $('ask-yes').disabled = $('ask-no').disabled = false;
  set($('ask-no'), 'Cancel');
  if (o.field) { set($('ask-label'), o.field); $('ask-input').value = o.value || ''; $('ask-input').required = true; } else { $('ask-input').required = false; }
  $('ask-form').onsubmit = async (e) => {
    e.preventDefault();
    $('ask-yes').disabled = true;
    set($('ask-said'), 'working…');
    const answer = await order(o.order($('ask-input').value.trim()));
    if (answer.error) {
      set($('ask-said'), answer.error);
      $('ask-yes').disabled = false;
      return;
    }
    if (o.done) o.done(answer);
    say(answer.said || 'done');
    set($('ask-said'), answer.said || 'done');
    if (o.close) { $('ask').close(); return; }
    $('ask-yes').hidden = true;
    set($('ask-no'), 'Close');
    $('ask-no').focus();
  };
  $('ask-yes').hidden = false;
  $('ask').showModal();
  (o.field ? $('ask-input') : $('ask-no')).focus();
}
$('ask-no').addEventListener('click', () => $('ask').close());

const named = () => state.sessions.get(state.at)?.name || state.at;

$('do-stop').addEventListener('click', () => {
  const s = state.sessions.get(state.at);
  const n = ((s && s.running) || []).length + ((s && s.jobs) || []).filter((j) => !j.ended).length;
  ask({
    title: 'Stop ' + named() + '?', yes: 'Stop it', danger: true,
    text: (n ? n + (n === 1 ? ' command that runs is' : ' commands that run are') + ' killed. ' : '') + 'The session ends, and its container is removed. What it has changed and you have not applied is gone.',
    order: () => ({ do: 'stop', session: state.at }),
  });
});

function allow(rule) {
  ask({
    title: 'Allow ' + named() + ' to reach a host', yes: 'Allow it', field: 'Host, HOST:PORT or a preset as @pypi', value: rule,
    text: 'The rule holds for the next connection, and until the session ends.',
    order: (text) => ({ do: 'allow', session: state.at, rule: text }),
  });
}
$('do-allow').addEventListener('click', () => allow(''));

$('do-apply').addEventListener('click', async () => {
  $('do-apply').disabled = true;
  let c;
  try {
    c = await changesOf(state.at);
  } catch (err) {
    say(String(err.message || err));
    problem(String(err.message || err));
    return;
  } finally {
    $('do-apply').disabled = false;
  }
  if (!c.files || !c.files.length) { say('Nothing has changed.'); show('changes'); compare(); return; }
  ask({
    title: 'Apply the changes of ' + named() + '?', yes: 'Apply to ' + c.dir, more: files(c.files),
    text: 'These files are written to ' + c.dir + ' on the machine of sandboxbash. Your own changes since the copy stay: either all fits together, or nothing is written.',
    order: () => ({ do: 'apply', session: state.at }),
    done: () => { state.compared = ''; },
  });
});

$('do-attach').addEventListener('click', () => ask({
  title: 'Open a shell in ' + named() + '?', yes: 'Open it', close: true,
  text: 'What you type there is not checked against the policy. The shell goes on when you close this page; `sandboxbash pty ls` lists it.',
  order: () => ({ do: 'attach', session: state.at }),
  done: (answer) => {
    go('terminals');
    const id = answer.said;
    let tries = 100;
    const wait = () => {
      if (screens.has(id)) typeInto(id); else if (--tries > 0) setTimeout(wait, 100);
    };
    wait();
  },
}));

// ---- views and addresses -----------------------------------------------------------------------------------------
function go(view) { location.hash = '#/session/' + encodeURIComponent(state.at) + (view === 'output' ? '' : '/' + view); }

function show(view) {
  state.view = view;
  for (const v of VIEWS) {
    const on = v === view;
    $('tab-' + v).setAttribute('aria-selected', String(on));
    $('tab-' + v).tabIndex = on ? 0 : -1;
    $('panel-' + v).hidden = !on;
  }
  if (view === 'output' && state.following) toEnd();
  if (view === 'network') renderNetwork();
  if (view === 'jobs') renderJobs();
  if (view === 'changes' && state.compared !== state.at && state.token) { $('changes').replaceChildren(); compare(); }
}

function route() {
  takeToken();
  const [, kind, id, view, aimed] = location.hash.split('/').map((p) => { try { return decodeURIComponent(p); } catch { return p; } });
  const at = kind === 'session' && id ? id : '';
  const moved = at !== state.at || !stream;
  state.at = at;
  state.aim = aimed || '';
  document.body.classList.toggle('open', Boolean(at));
  $('session').hidden = !at;
  $('welcome').hidden = Boolean(at);
  if (!at) document.title = 'sandboxbash';
  if (moved) {
    state.following = true;
    $('follow').hidden = true;
    clearDetail();
    set($('name'), at.slice(0, 13));
    $('facts').replaceChildren();
    connect();
    if (at && document.activeElement && document.activeElement.closest('#list')) $('main').focus();
  }
  show(VIEWS.includes(view) ? view : 'output');
  renderHead();
  renderList();
  aim();
}
window.addEventListener('hashchange', route);
$('skip').addEventListener('click', (e) => { e.preventDefault(); $('main').focus(); });

$('tabs').addEventListener('click', (e) => {
  const tab = e.target.closest('[role=tab]');
  if (tab) go(tab.id.slice(4));
});
$('tabs').addEventListener('keydown', (e) => {
  const at = VIEWS.indexOf(state.view);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[e.key];
  if (to === undefined) return;
  e.preventDefault();
  const view = VIEWS[(to + VIEWS.length) % VIEWS.length];
  go(view);
  $('tab-' + view).focus();
});

// ---- keys --------------------------------------------------------------------------------------------------------
const keysOn = () => localStorage.getItem('keys') !== 'off';
$('keys-on').addEventListener('change', (e) => localStorage.setItem('keys', e.target.checked ? 'on' : 'off'));
function help() { $('keys-on').checked = keysOn(); $('help').showModal(); }
$('help-open').addEventListener('click', help);
$('help-close').addEventListener('click', () => $('help').close());

document.addEventListener('keydown', (e) => {
  if (!keysOn() || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || state.typing || document.querySelector('dialog[open]') || e.target.closest('input')) return;
  if (e.key === '/') { e.preventDefault(); location.hash = matchMedia('(max-width: 760px)').matches ? '#/' : location.hash; $('filter').focus(); }
  else if (e.key === '?') help();
  else if (e.key === 'f' && state.at) follow();
  else if (/^[1-5]$/.test(e.key) && state.at) go(VIEWS[e.key - 1]);
  else if (e.key === 'j' || e.key === 'k') {
    const list = sorted();
    const at = list.findIndex((s) => s.id === state.at);
    const to = list[Math.max(0, Math.min(list.length - 1, at + (e.key === 'j' ? 1 : -1)))];
    if (to) { location.hash = '#/session/' + encodeURIComponent(to.id); rows.get(to.id)?.a.scrollIntoView({ block: 'nearest' }); }
  }
});

// ---- time, while something runs ----------------------------------------------------------------------------------
// Nothing ticks while nothing runs, or nobody looks: ages then change with the next event, or when the page is shown again.
let ticking = null;
const busy = () => !document.hidden && [...state.sessions.values()].some((s) => s.state === 'running');
function tick() {
  if (ticking || !busy()) return;
  const step = () => {
    for (const e of document.querySelectorAll('.runs')) set(e, 'runs for ' + took(Math.max(0, Math.floor((now() - Date.parse(e.dataset.since)) / 1000) * 1000)));
    for (const [id, r] of rows) set(r.ag, ago(state.sessions.get(id)?.active));
    if (!busy()) { clearInterval(ticking); ticking = null; }
  };
  ticking = setInterval(step, 1000);
  step();
}
document.addEventListener('visibilitychange', () => { if (!document.hidden) { renderList(); tick(); } });

route();
