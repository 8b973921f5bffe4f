// The card: it polls its task, shows its status, and reports a result to the model that its call did not return.

const at = (id) => document.getElementById(id);
const card = at("card");
const NAMES = {
  queued: "Queued", scheduled: "Starting", running: "Running", input_required: "Needs an answer",
  cancel_requested: "Stopping", cancelling: "Stopping",
  succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled", timed_out: "Timed out",
};
const LOOKS = { running: "running", input_required: "asking", succeeded: "succeeded", failed: "failed", timed_out: "failed" };
const SOONEST_MS = 1000, LIVELY_MS = 5000, LATEST_MS = 15000, UNSEEN_MS = 20000;
const SEEK_MS = 500; // most calls of a reopened chat, and short ones, have their answer by then
const LIVELY_LOOKS = 8, MOST_LINES = 300;

let taskId = null;
let cursor = null; // where to go on in the log
let task = null; // as it was last seen
let seenAt = 0; // when that was, and
let ahead = 0; // how far this clock is ahead of the server's
let timer = 0, busy = false, again = false, ended = false;
let looks = 0, quiet = 0, failures = 0; // looks in all, and in a row that saw nothing new or failed
let inView = true;
let asked = "", announced = "", toldAttempt = null;

// -- looking

function later(ms) {
  clearTimeout(timer);
  if (!ended && taskId && !document.hidden) timer = setTimeout(look, inView ? ms : Math.max(ms, UNSEEN_MS));
}

async function look() {
  if (ended || !taskId) return;
  if (busy) return void (again = true);
  busy = true;
  clearTimeout(timer);
  const afterAnswer = answer !== null;
  try {
    const seen = await callTool("backburner_card_look", cursor ? { task_id: taskId, cursor } : { task_id: taskId });
    if (ended) return;
    if (seen.task_id !== taskId) return void (again = true); // meanwhile the host has named another
    failures = 0;
    quiet = isNews(seen) ? 0 : quiet + 1;
    show(seen);
    if (!seen.finished) {
      if (afterAnswer) informed = false; // the host gave up the call, say
      later(pause(seen));
    } else if (answer && !informed && !(stopped && seen.state === "cancelled")) tell(seen);
  } catch (error) {
    if (error.code === "task_not_found") return gone();
    failures += 1;
    note(`Its state cannot be had now: ${error.message}`);
    later(Math.min(60000, 2000 * 2 ** failures));
  } finally {
    busy = false;
    if (again) { again = false; later(0); }
  }
}

/** Soon at first, when there is much to see; then as the server advises, but for who looks on; and later when nothing happens. */
function pause({ poll_after_ms: advised }) {
  looks += 1;
  const now = looks < LIVELY_LOOKS ? SOONEST_MS : Math.min(LIVELY_MS, Math.max(SOONEST_MS, advised / 3));
  return Math.min(LATEST_MS, now * 1.3 ** quiet);
}

const isNews = (seen) =>
  !task || seen.log.lines.length > 0 || ["state", "percent", "phase", "message", "position"].some((key) => seen[key] !== task[key]);

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) look();
});
new IntersectionObserver(([entry]) => {
  const before = inView;
  inView = entry.isIntersecting;
  if (inView && !before && !task?.finished) look();
}).observe(card);

// -- showing

function show(seen) {
  [task, seenAt, ahead] = [seen, Date.now(), Date.now() - seen.now];
  note("");
  name(seen.title || seen.tool);
  const state = seen.cancelling ? "Stopping" : NAMES[seen.state] || seen.state;
  card.dataset.state = seen.cancelling ? "waiting" : LOOKS[seen.state] || "waiting";
  at("state").textContent = state;
  showProgress(seen);
  showLog(seen.log);
  showQuestions(seen);
  showFiles(at("files"), taskId, seen.artifacts);
  if (seen.outcome) showOutcome(seen.outcome);
  else at("outcome").hidden = true;
  at("cancelling").hidden = seen.finished || seen.cancelling;
  if (at("cancelling").hidden) sure(false);
  announce(seen, state);
  tick();
}

function name(text) {
  at("title").textContent = inLine(text);
  at("title").title = inLine(text);
}

function note(text) {
  at("note").textContent = inLine(text);
  at("note").hidden = !text;
}

function showProgress({ finished, state, percent, phase, message, words, position }) {
  const bar = at("bar");
  const part = Number.isFinite(percent) ? Math.min(100, Math.max(0, percent)) : null;
  at("where").hidden = finished;
  bar.hidden = finished || (part === null && state !== "running");
  bar.classList.toggle("unknown", part === null && state === "running");
  at("fill").style.transform = part === null ? "" : `scaleX(${part / 100})`;
  if (part === null) bar.removeAttribute("aria-valuenow");
  else bar.setAttribute("aria-valuenow", Math.round(part));
  const queued = position ? `Number ${number(position)} in its queue` : words;
  const said = [phase, message].filter(Boolean).map(inLine).join(" · ");
  const silent = state === "running" || state === "input_required"; // then the rest of the card says it
  at("words").textContent = state === "queued" ? inLine(queued) : said || (silent ? "" : inLine(words));
}

/** What changes by itself between two looks. */
function tick() {
  if (!task) return;
  const now = Date.now();
  const until = task.completed_at ? task.completed_at : now - ahead;
  const since = task.started_at || task.submitted_at;
  at("elapsed").textContent = task.started_at || task.finished ? span((until - since) / 1000, task.finished) : "";
  const left = task.eta_s === null ? null : Math.max(0, task.eta_s - (now - seenAt) / 1000);
  const running = task.state === "running" && !task.cancelling;
  const parts = [
    Number.isFinite(task.percent) && number(task.percent / 100, { style: "percent", maximumFractionDigits: 0 }),
    running && left !== null && `${roughly(left)} left`,
  ].filter(Boolean);
  at("left").textContent = parts.join(" · ");
  at("bar").setAttribute("aria-valuetext", parts.join(", ") || at("state").textContent);
}
setInterval(() => { if (!document.hidden && !ended && task && !task.finished) tick(); }, 1000);

const unfinished = {}; // the row of each stream that its next line replaces

function showLog({ lines, skipped, more, cursor: next }) {
  const tail = at("tail");
  const atEnd = tail.scrollHeight - tail.scrollTop - tail.clientHeight < 24;
  if (cursor === null) {
    tail.replaceChildren();
    for (const stream of Object.keys(unfinished)) delete unfinished[stream];
    at("lines").textContent = skipped ? `the last ${number(lines.length)} of ${number(skipped + lines.length)} lines` : "";
  }
  for (const { text, level, stream } of lines) {
    const bad = /^(?:error|critical|alert|emergency)$/.test(level) || stream === "stderr";
    const row = element("div", logLine(text) || " ", { class: bad ? "bad" : level === "warning" ? "warn" : null });
    unfinished[stream]?.remove();
    unfinished[stream] = text.endsWith("\r") ? row : null;
    tail.append(row);
  }
  while (tail.childElementCount > MOST_LINES) tail.firstElementChild.remove();
  cursor = more ? null : next; // of a log that grows faster than it is read, the end is looked at
  const log = at("log");
  if (tail.childElementCount && log.hidden) [log.hidden, log.open] = [false, !task.finished];
  if (atEnd) tail.scrollTop = tail.scrollHeight;
}

function showQuestions({ questions }) {
  const place = at("questions");
  const keys = JSON.stringify(questions.map((one) => one.key));
  place.hidden = questions.length === 0;
  if (keys === asked) return; // what somebody is writing stays
  const within = place.contains(document.activeElement);
  asked = keys;
  place.replaceChildren(...questions.map((one) => question(one, send)));
  if (within) at("title").focus();
}

async function send(key, answer) {
  await callTool("backburner_card_answer", { task_id: taskId, answers: { [key]: answer } });
  quiet = 0;
  await look();
}

function showOutcome({ text, images, failed }) {
  at("outcome").hidden = !text && !images.length;
  at("outcome").setAttribute("aria-label", failed ? "What went wrong" : "Result");
  at("result").textContent = visible(text);
  at("images").replaceChildren(
    ...images.filter(({ type }) => PICTURE.test(type)).map(({ type, data }) =>
      element("img", "", { alt: "A picture in the result", src: `data:${type};base64,${data}` })),
  );
}

/** For who does not see the card: each new state, and each quarter of the way. */
function announce({ percent, questions, finished }, state) {
  const quarter = Number.isFinite(percent) && !finished ? Math.floor(percent / 25) * 25 : 0;
  const words = [state, quarter ? `${quarter} %` : "", questions.length ? inLine(questions[0].params.message || "") : ""];
  const now = words.filter(Boolean).join(", ");
  if (now !== announced) at("said").textContent = announced = now;
}

function gone() {
  ended = true;
  card.dataset.state = "waiting";
  at("state").textContent = "Gone";
  for (const id of ["bar", "where", "questions", "cancelling", "log", "files", "outcome", "elapsed"]) at(id).hidden = true;
  if (informed) return showAnswer();
  note("This task is not kept any more: it has expired, or was deleted.");
  at("said").textContent = "Gone";
}

// -- cancelling

function sure(asking) {
  at("sure").hidden = at("keep").hidden = !asking;
  at("cancel").textContent = asking ? "Stop" : "Cancel";
  at("cancel").classList.toggle("stop", asking);
}

at("keep").addEventListener("click", () => {
  sure(false);
  at("cancel").focus();
});
at("cancel").addEventListener("click", async () => {
  if (at("keep").hidden) return sure(true);
  at("cancel").disabled = true;
  try {
    await callTool("backburner_card_cancel", { task_id: taskId });
    at("title").focus();
    await look();
  } catch (error) {
    note(`It could not be cancelled: ${error.message}`);
  }
  at("cancel").disabled = false;
  sure(false);
});

// -- telling the model of a result that no call has returned

const succeed = (result) => {
  if (result.isError) throw new Error("The host refused.");
};

async function tell({ tells, attempt }) {
  if (tells === "nothing" || toldAttempt === attempt) return;
  toldAttempt = attempt;
  try {
    const { tell: due, whole, sentence } = await callTool("backburner_card_tell", { task_id: taskId });
    if (!due) return;
    await tellModel(tells, whole, sentence);
  } catch (error) {
    return note(`The model could not be told that it is over: ${error.message}`);
  }
  await callTool("backburner_card_tell", { task_id: taskId, told: true }).catch(() => {});
}

async function tellModel(tells, whole, sentence) {
  const blocks = (text) => [{ type: "text", text }]; // a list in a message too: the specification's types have one, its prose not
  let text = sentence;
  await request("ui/update-model-context", { content: blocks(whole) }).then(succeed).catch((error) => {
    if (tells !== "message") throw error;
    text = whole; // then it is all in the message
  });
  if (tells === "message") await request("ui/message", { role: "user", content: blocks(text) }).then(succeed);
}

// -- what the host says

const TASK = /^tsk_[0-9A-Z]{36}$/;
let answer = null; // what the host has as the answer to the call
let informed = false; // whether that is the result, so that the model has it
let stopped = false; // whether the host has cancelled the call

function begin(result) {
  answer = result;
  clearTimeout(timer);
  const meta = result._meta || {};
  const done = [meta["backburner/result-of"], meta["io.modelcontextprotocol/related-task"]?.taskId].find((one) => TASK.test(one));
  const handed = [meta["backburner/task"], result.structuredContent?.data?.job_id].find((one) => TASK.test(one));
  informed = Boolean(done || !handed);
  if (done || handed) turnTo(done || handed);
  if (taskId) look();
  else showAnswer(); // there is no task: the call was refused, or the host drops its id
}

function showAnswer() {
  const content = answer.content || [];
  const text = content.filter((block) => block.type === "text").map((block) => block.text).join("\n");
  const images = content.filter((block) => block.type === "image").map((block) => ({ type: block.mimeType, data: block.data }));
  card.dataset.state = answer.isError ? "failed" : "succeeded";
  at("state").textContent = answer.isError ? "Failed" : "Succeeded";
  showOutcome({ text, images, failed: answer.isError });
}

function turnTo(id) {
  if (id === taskId) return;
  [taskId, task, cursor, asked] = [id, null, null, ""];
  known.clear();
  at("files").replaceChildren();
}

/** Find the task of a call that is under way: the host knows no id before its answer. */
async function seek(inputs, ms) {
  const { tool, id } = context.toolInfo || {};
  if (answer || taskId || ended || !tool?.name) return;
  if (!document.hidden) {
    const which = { tool_name: tool.name, inputs, ...(["string", "number"].includes(typeof id) && { request_id: id }) };
    const found = await callTool("backburner_card_find", which).catch(() => ({}));
    if (answer || taskId || ended) return;
    if (TASK.test(found.task_id)) {
      turnTo(found.task_id);
      return void look();
    }
  }
  setTimeout(seek, ms, inputs, Math.min(LIVELY_MS, ms * 1.5));
}

hears.set("ui/notifications/tool-input", ({ arguments: inputs }) => setTimeout(seek, SEEK_MS, inputs || {}, SEEK_MS));
hears.set("ui/notifications/tool-result", begin);
hears.set("ui/notifications/tool-cancelled", ({ reason }) => {
  answer ??= {};
  stopped = true;
  if (taskId) return void look();
  at("state").textContent = "Cancelled";
  if (reason) note(reason);
});
hears.set("ui/notifications/host-context-changed", follow);
answers.set("ping", () => ({}));
answers.set("ui/resource-teardown", () => {
  ended = true;
  clearTimeout(timer);
});

greet().then(() => {
  const tool = context.toolInfo?.tool;
  if (!task && tool) name(tool.title || tool.annotations?.title || tool.name);
}, (error) => note(`The host does not answer: ${error.message}`));
