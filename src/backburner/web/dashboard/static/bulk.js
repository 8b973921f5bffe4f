// Bulk actions on selected tasks, or on all tasks of the filter.

const WORDS = {
  cancel: { title: "Cancel", done: "Cancelled", about: "Running tasks are asked to stop." },
  retry: { title: "Retry", done: "Queued again", about: "Each runs again with the same inputs." },
  delete: { title: "Delete", done: "Deleted", about: "Their logs, results and artifacts are deleted permanently." },
};
const AT_ONCE = 4;

const tasksOf = (count) => (count === 1 ? "1 task" : `${number(count)} tasks`);
const tickedRows = () => listRows().filter((row) => row.querySelector("[data-tick]")?.checked);
const bulkFilter = () => JSON.parse(document.getElementById("bulk-filter").textContent);
let allOfFilter = false;

function showChosen() {
  const bar = document.getElementById("bulk");
  if (!bar) return;
  const rows = listRows();
  const ticked = tickedRows();
  if (!ticked.length || ticked.length < rows.length) allOfFilter = false;
  for (const row of rows) row.classList.toggle("ticked", ticked.includes(row));
  const all = document.getElementById("tick-all");
  if (all) {
    all.checked = rows.length > 0 && ticked.length === rows.length;
    all.indeterminate = ticked.length > 0 && ticked.length < rows.length;
  }
  bar.hidden = !ticked.length;
  bar.querySelector(".count").textContent = allOfFilter ? "All tasks of this filter" : `${number(ticked.length)} selected`;
  bar.querySelector("[data-bulk=all]").hidden = allOfFilter || ticked.length < rows.length;
  const { fit } = bulkFilter();
  for (const action of Object.keys(WORDS)) {
    bar.querySelector(`[data-bulk=${action}]`).disabled = !allOfFilter && !ticked.some((row) => fit[action].includes(row.dataset.state));
  }
  if (!ticked.length) releaseUnread();
}

function tickAll(ticked) {
  for (const box of document.querySelectorAll("#rows [data-tick]")) box.checked = ticked;
  showChosen();
}

/** Ask for confirmation; `more` is appended to the text. */
function confirmed(action, count, more = "") {
  const dialog = document.getElementById("confirm");
  const { title, about } = WORDS[action];
  dialog.querySelector("h2").textContent = `${title} ${tasksOf(count)}?`;
  dialog.querySelector("p").textContent = [about, more].filter(Boolean).join(" ");
  dialog.querySelector("button[value=yes]").textContent = `${title} ${tasksOf(count)}`;
  return agreed(dialog);
}

async function actOnFilter(action) {
  const { filter, last_s } = bulkFilter();
  if (last_s) {
    const since = filter.since && Date.parse(/Z|[+-]\d\d:\d\d$/.test(filter.since) ? filter.since : `${filter.since}Z`);
    filter.since = new Date(Math.max(Date.now() - last_s * 1000, since || 0)).toISOString();
  }
  const body = { action, filter };
  const { matched, more } = await api("POST", "/tasks/actions", { ...body, dry_run: true });
  if (!matched) return void say(`No task can be ${WORDS[action].done.toLowerCase()} now.`);
  const rest = more ? "Only the newest: repeat the action for the rest." : "";
  if (!(await confirmed(action, matched, rest))) return;
  const { done, left_alone } = await api("POST", "/tasks/actions", { ...body, limit: matched });
  tickAll(false);
  say(`${WORDS[action].done}: ${tasksOf(done)}.${left_alone.length ? ` ${tasksOf(left_alone.length)} changed meanwhile.` : ""}`);
}

async function actOnTicked(action) {
  const fit = bulkFilter().fit[action];
  const rows = tickedRows();
  const ids = rows.filter((row) => fit.includes(row.dataset.state)).map((row) => row.dataset.id);
  if (!ids.length) return void say(`No task can be ${WORDS[action].done.toLowerCase()} now.`);
  const others = rows.length - ids.length;
  if (!(await confirmed(action, ids.length, others ? `Not possible for ${others} of the selected tasks.` : ""))) return;
  const waiting = [...ids];
  const failed = [];
  const work = async () => {
    for (let id = waiting.shift(); id; id = waiting.shift()) {
      const call = action === "delete" ? api("DELETE", `/tasks/${id}`) : api("POST", `/tasks/${id}/${action}`, {});
      await call.catch((error) => failed.push(error));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  tickAll(false);
  say(`${WORDS[action].done}: ${tasksOf(ids.length - failed.length)}.${failed.length ? ` ${failed.length} not: ${failed[0].message}` : ""}`, failed.length > 0);
}

/** Shift selects all rows since the last click. A click next to a checkbox counts. */
let lastTicked = null;
document.addEventListener("click", (event) => {
  const cell = event.target.closest?.("td.tick");
  const box = cell?.querySelector("[data-tick]");
  if (!box) return;
  if (event.target !== box) box.checked = !box.checked;
  const rows = listRows();
  const [from, to] = [rows.findIndex((row) => row.id === lastTicked), rows.indexOf(cell.parentElement)];
  if (event.shiftKey && from >= 0) {
    for (const row of rows.slice(Math.min(from, to), Math.max(from, to) + 1)) row.querySelector("[data-tick]").checked = box.checked;
  }
  lastTicked = cell.parentElement.id;
  showChosen();
});
document.addEventListener("change", ({ target }) => {
  if (target.id === "tick-all") tickAll(target.checked);
  else if (target.matches?.("[data-tick]")) showChosen();
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-bulk]");
  if (!button) return;
  const action = button.dataset.bulk;
  if (action === "none") return void tickAll(false);
  if (action === "all") {
    allOfFilter = true;
    return void showChosen();
  }
  button.disabled = true;
  try {
    await (allOfFilter ? actOnFilter(action) : actOnTicked(action));
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
  }
});
document.addEventListener("visiting", () => tickAll(false));
document.addEventListener("morphed", showChosen);
addEventListener("pageshow", showChosen);
