// Log of a task. Lines are loaded when they come into view, new ones as they are written. Only visible blocks of
// lines are rendered. Requires text.js, ansi.js and actions.js.

const BLOCK = 200, PAGE = 5000; // lines
const LONGEST = 4000; // shown characters of a line
const ROW = 20; // estimated height of a line

const taskId = document.getElementById("head").dataset.task;
const logPath = `/tasks/${taskId}/logs`;
const part = (name) => document.getElementById(`log-${name}`);
const lines = document.getElementById("lines");
const known = []; // loaded lines by number minus one; null: no such line
const blocks = []; // {element, first, drawn, coming, near}: `drawn` is the number of rendered lines, or null
let total = 0;

// -- loading

const latest = {}; // number of the latest line of each stream

/** What is kept of a line. Of a long one, a copy: a slice would hold all of it. One that ends with a carriage return
    is replaced by the next of its stream. */
function keep({ seq, ts, stream, level, message, offset, length }) {
  if (offset) return;
  const open = message.endsWith("\r"), last = latest[stream] ?? 0;
  if (open && last > seq) return void (known[seq - 1] = null);
  if (last < seq && known[last - 1]?.open) {
    known[last - 1] = null;
    document.getElementById(`L${last}`)?.remove();
  }
  latest[stream] = Math.max(last, seq);
  const text = message.length > LONGEST ? [...message.slice(0, LONGEST)].join("") : message;
  known[seq - 1] = { seq, ts, stream, level, text, length, open };
}

/** Load the lines from `from` + 1 to `to`. The rest of a line longer than a page is skipped. */
async function have(from, to) {
  while (from < to && known[from] !== undefined) from += 1;
  for (let at = from; at < to; ) {
    const page = await api("GET", `${logPath}?after=${at}&limit=${Math.min(PAGE, to - at)}`);
    page.lines.forEach(keep);
    if (!page.lines.length) break;
    at = page.next_offset ? page.next_after + 1 : page.next_after;
  }
  for (let at = from; at < to; at += 1) known[at] ??= null;
}

// -- rendering

const found = { text: "", at: -1, lines: [], run: 0 };

/** Append pieces to an element, with search matches marked. */
function put(place, pieces) {
  const whole = pieces.map(([text]) => text).join("").toLowerCase();
  const ends = [];
  if (found.text) for (let at = whole.indexOf(found.text); at >= 0; at = whole.indexOf(found.text, at + found.text.length)) ends.push(at, at + found.text.length);
  let at = 0, inside = 0; // odd: within a match
  for (const [text, classes] of pieces) {
    let rest = text;
    while (rest) {
      while (ends[inside] <= at) inside += 1;
      const upTo = ends[inside] === undefined ? rest.length : Math.min(rest.length, ends[inside] - at);
      const made = document.createElement(inside % 2 ? "mark" : "span");
      made.textContent = rest.slice(0, upTo);
      if (classes) made.className = classes;
      place.append(made);
      [rest, at] = [rest.slice(upTo), at + upTo];
    }
  }
}

const BAD = /^(?:error|critical|alert|emergency)$/, ODD = /^(?:warning|notice)$/;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });

function drawn(line) {
  const row = element("div", "", { class: "line", id: `L${line.seq}` });
  if (BAD.test(line.level)) row.classList.add("bad");
  else if (ODD.test(line.level)) row.classList.add("warn");
  if (line.stream === "stderr") row.classList.add("stderr");
  if (line.seq === marked) row.classList.add("marked");
  row.append(element("a", String(line.seq), { class: "no", href: `#L${line.seq}`, tabindex: -1 }));
  row.append(element("span", `${clock.format(new Date(line.ts))} ${line.stream === "log" ? line.level : line.stream}`, { class: "when" }));
  const text = element("span", "", { class: "text" });
  put(text, coloured(line.text));
  if (line.length > line.text.length) text.append(element("span", ` … and ${number(line.length - line.text.length)} more characters`, { class: "cut" }));
  row.append(text);
  return row;
}

const end = (block) => Math.min(total, block.first + BLOCK);

/** Render new lines of a block, as far as loaded. */
function draw(block) {
  const rows = [];
  let at = block.first + block.drawn;
  for (; at < end(block) && known[at] !== undefined; at += 1) if (known[at]) rows.push(drawn(known[at]));
  block.drawn = at - block.first;
  block.element.append(...rows);
}

async function show(block) {
  if (block.drawn !== null || block.coming) return block.coming;
  block.coming = have(block.first, end(block)).then(() => {
    block.drawn = 0;
    block.element.style.height = "";
    draw(block);
  }).catch((error) => say(error.message, true)).finally(() => (block.coming = null));
  return block.coming;
}

function hide(block) {
  if (block.drawn === null) return;
  block.drawn = null;
  block.element.style.height = `${block.element.offsetHeight}px`;
  block.element.replaceChildren();
}

const inView = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const block = blocks[Number(target.dataset.at)];
    block.near = isIntersecting;
    if (isIntersecting) show(block).then(() => block.near || hide(block));
    else hide(block);
  }
}, { root: lines, rootMargin: "800px 0px" });

/** Set the number of lines and render visible ones. */
function grow(now) {
  const changed = Math.floor(total / BLOCK);
  total = Math.max(total, now);
  for (let first = blocks.length * BLOCK; first < total; first += BLOCK) {
    const made = element("div", "", { class: "block", "data-at": blocks.length });
    blocks.push({ element: made, first, drawn: null, coming: null, near: false });
    lines.append(made);
    inView.observe(made);
  }
  blocks.forEach((block, at) => {
    const count = end(block) - block.first;
    if (block.drawn === null) return void (at >= changed && (block.element.style.height = `${count * ROW}px`));
    if (block.drawn < count) draw(block);
    if (block.drawn < count && !stream) have(block.first, end(block)).then(() => block.drawn === null || draw(block), () => {});
  });
  part("count").textContent = total ? `${number(total)} ${total === 1 ? "line" : "lines"}` : "";
  part("empty").hidden = total > 0 || moves();
  lines.hidden = total === 0;
  if (following) toEnd();
}

function redraw() {
  for (const block of blocks) {
    if (block.drawn === null) continue;
    block.drawn = 0;
    block.element.replaceChildren();
    draw(block);
  }
}

// -- following

let following = true, before = 0; // last scroll position
const moves = () => part("state").dataset.moves === "yes";
const toEnd = () => (lines.scrollTop = lines.scrollHeight);

function follows(now) {
  following = now;
  lines.classList.toggle("following", now);
  part("follow").hidden = now || total === 0;
  part("follow").textContent = moves() ? "↓ Follow" : "↓ To the end";
}

lines.addEventListener("scroll", () => {
  const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < ROW;
  if (atEnd) follows(true);
  else if (lines.scrollTop < before) follows(false);
  before = lines.scrollTop;
});
part("follow").addEventListener("click", () => {
  follows(true);
  toEnd();
  lines.focus();
});
const heights = new ResizeObserver(() => following && toEnd());
new MutationObserver((changes) => changes.forEach(({ addedNodes }) => addedNodes.forEach((one) => heights.observe(one)))).observe(lines, { childList: true });

let stream = null, waiting = 0;

function listen() {
  if (stream || document.hidden || !moves()) return;
  stream = new EventSource(`${root}/api/v1${logPath}/stream?after=${total}`);
  stream.addEventListener("line", ({ data }) => {
    const line = JSON.parse(data);
    keep(line);
    coming = Math.max(coming, line.seq);
    if (line.offset === 0) seek(line.seq - 1);
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      grow(coming);
    });
  });
  stream.addEventListener("end", hush);
  stream.addEventListener("error", () => stream?.readyState === EventSource.CLOSED && hush());
}
let coming = 0;

function hush() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? hush() : listen()));
addEventListener("pagehide", hush);
document.addEventListener("gone", hush);
document.addEventListener("morphed", () => {
  if (!moves()) grow(Number(part("state").dataset.last));
  follows(following);
  listen();
});

// -- jumping to a line

let marked = 0;

async function goTo(seq) {
  if (!(seq >= 1 && seq <= total)) return;
  follows(false);
  await show(blocks[Math.floor((seq - 1) / BLOCK)]);
  const row = document.getElementById(`L${seq}`);
  if (!row) return;
  lines.querySelector(".marked")?.classList.remove("marked");
  row.classList.add("marked");
  marked = seq;
  const [place, frame] = [row.getBoundingClientRect(), lines.getBoundingClientRect()];
  if (place.top < frame.top || place.bottom > frame.bottom) lines.scrollTop += place.top - frame.top - lines.clientHeight / 2;
  row.scrollIntoView({ block: "nearest" });
}

function toHash() {
  const seq = Number(/^#L(\d{1,12})$/.exec(location.hash)?.[1]);
  if (seq) goTo(seq);
}
addEventListener("hashchange", toHash);

// -- search

const plain = ({ text }) => (/[\u001b\r]/.test(text) ? coloured(text).map(([shown]) => shown).join("") : text).toLowerCase();

function seek(at) {
  if (found.text && known[at] && at >= found.upTo && plain(known[at]).includes(found.text)) found.lines.push(at);
  if (found.text) sayFound();
}

function sayFound(searching = false) {
  const where = found.at >= 0 ? `${number(found.at + 1)} of ` : "";
  const count = found.lines.length;
  part("found").textContent = !found.text ? "" : `${where}${number(count)} ${count === 1 ? "line" : "lines"}${searching ? " …" : ""}`;
}

/** Search the whole log, page by page, without blocking the page. */
async function search(text) {
  const run = ++found.run;
  Object.assign(found, { text: text.toLowerCase(), at: -1, lines: [], upTo: Infinity });
  redraw();
  sayFound(true);
  if (!found.text) return;
  let at = 0;
  while (at < total) {
    const end = Math.min(total, at + PAGE);
    await have(at, end);
    for (; at < end; at += 1) {
      if (run !== found.run) return;
      if (known[at] && plain(known[at]).includes(found.text)) found.lines.push(at);
      if (at % 1000 === 999) await new Promise((go) => setTimeout(go));
    }
    sayFound(true);
    if (found.at < 0 && found.lines.length) step(1);
  }
  found.upTo = at;
  sayFound();
}

function step(by) {
  const count = found.lines.length;
  if (!count) return;
  found.at = (found.at + by + count) % count;
  sayFound();
  goTo(found.lines[found.at] + 1);
}

let typing = 0;
part("search").addEventListener("input", ({ target }) => {
  clearTimeout(typing);
  typing = setTimeout(() => search(target.value).catch((error) => say(error.message, true)), 200);
});
part("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.isComposing) step(event.shiftKey ? -1 : 1);
});
part("before").addEventListener("click", () => step(-1));
part("next").addEventListener("click", () => step(1));

// -- options and download

for (const name of ["times", "wrap"]) {
  part(name).addEventListener("click", ({ target }) => {
    const now = target.getAttribute("aria-pressed") !== "true";
    target.setAttribute("aria-pressed", now);
    lines.classList.toggle(name, now);
  });
}

part("whole").addEventListener("click", async ({ target }) => {
  target.disabled = true;
  try {
    const pieces = [];
    for (let after = 0, offset = 0, more = true; more; ) {
      const page = await api("GET", `${logPath}?after=${after}&offset=${offset}&limit=${PAGE}`);
      for (const line of page.lines) pieces.push(line.message.replace(/\r$/, ""), line.offset + line.message.length < line.length ? "" : "\n");
      ({ next_after: after, next_offset: offset, more } = page);
      target.textContent = `${number(after)} lines`;
    }
    const link = element("a", "", { href: URL.createObjectURL(new Blob(pieces, { type: "text/plain" })), download: `${taskId}.log` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (error) {
    say(error.message, true);
  }
  target.textContent = "Download";
  target.disabled = false;
});

grow(Number(part("state").dataset.last));
follows(!location.hash.startsWith("#L"));
toHash();
listen();
