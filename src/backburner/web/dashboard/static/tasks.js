// Task list: filters apply immediately, and rows keep their place while the list is read.

const filterForm = () => document.getElementById("filter");
const listRows = () => [...document.querySelectorAll("#rows > tr")];

// -- navigation without reloading

let visits = 0;

/** Show the list of an address. `how`: "push" or "replace" the history entry, or neither. */
async function visit(address, how) {
  const mine = ++visits;
  const answer = await fetch(address).catch(() => null);
  if (mine !== visits) return;
  if (!answer || answer.redirected) return void location.assign(address);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== visits) return;
  if (how) history[`${how}State`](null, "", address);
  rest();
  document.title = page.title;
  document.dispatchEvent(new Event("visiting"));
  const main = document.getElementById("main");
  const fresh = page.getElementById("main");
  main.toggleAttribute("data-live", fresh.hasAttribute("data-live"));
  morphChildren(main, fresh);
  showFilter();
  tick();
  document.dispatchEvent(new Event("morphed"));
  follow();
}

/** Set the fields from the address, except the focused one. */
function showFilter() {
  for (const control of filterForm()?.elements ?? []) {
    if (control === document.activeElement && control.type === "search") continue;
    if (control.type === "checkbox") control.checked = control.defaultChecked;
    else if (control.tagName === "SELECT") control.selectedIndex = Math.max(0, [...control.options].findIndex((one) => one.defaultSelected));
    else control.value = control.defaultValue;
  }
}

let typed = false;

function applyFilter(isTyped = false) {
  const said = [...new FormData(filterForm())].filter(([, value]) => value.trim());
  const address = new URL(filterForm().action);
  address.search = new URLSearchParams(said);
  const how = isTyped && typed ? "replace" : "push";
  typed = isTyped;
  if (address.href !== location.href) visit(address.href, how);
}

/** If the search text is the beginning of an id, go to that task or list all matches. */
async function findTask(text) {
  const [, short] = /^(?:tsk_)?([0-9a-z]{4,36})…?$/i.exec(text.trim()) ?? [];
  const found = short && (await api("GET", `/tasks?limit=2&id=${short}`).catch(() => null));
  if (!found?.tasks.length) return false;
  if (found.tasks.length > 1) visit(`${filterForm().action}?text=tsk_${short}`, "push");
  else location.assign(`${root}/dashboard/tasks/${found.tasks[0].task_id}`);
  return true;
}

document.addEventListener("submit", async (event) => {
  if (event.target !== filterForm()) return;
  event.preventDefault();
  clearTimeout(applyFilter.timer);
  const search = filterForm().elements.text;
  if (document.activeElement === search && (await findTask(search.value))) return;
  applyFilter();
});
document.addEventListener("change", (event) => {
  if (event.target.form && event.target.form === filterForm() && event.target.type !== "search") applyFilter();
});
document.addEventListener("input", ({ target }) => {
  if (!target.form || target.form !== filterForm()) return;
  clearTimeout(applyFilter.timer);
  const isChosen = target.list && (!target.value || [...target.list.options].some((one) => one.value === target.value));
  if (target.type === "search") applyFilter.timer = setTimeout(applyFilter, 300, true);
  else if (isChosen) applyFilter.timer = setTimeout(applyFilter, 150);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-visit]");
  const plain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button);
  if (link && plain) {
    event.preventDefault();
    typed = false;
    const leads = link.rel === "next" || link.rel === "prev";
    visit(link.href, "push").then(() => leads && scrollTo(0, 0));
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
/** Open a task by a click on its row, except on controls or while text is selected. */
document.addEventListener("click", (event) => {
  const row = event.target.closest?.("#rows > tr");
  if (!row || event.target.closest("a, input, button, td.tick") || String(getSelection())) return;
  const link = row.querySelector("a[data-open]");
  if (event.ctrlKey || event.metaKey) open(link.href, "_blank", "noopener");
  else link.click();
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest?.("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
addEventListener("popstate", () => {
  typed = false;
  visit(location.href);
});

// -- stable rows: known rows are updated in place, new ones are shown on request

let held = null;

const isRead = () =>
  scrollY > 120 || document.querySelector("#rows [data-tick]:checked") || document.getElementById("rows")?.contains(document.activeElement);

document.addEventListener("morphing", ({ detail: fresh }) => {
  held = null;
  const rows = fresh.querySelector("#rows");
  const old = listRows();
  const button = document.getElementById("new-tasks");
  let coming = 0;
  if (rows && old.length && isRead()) {
    const latest = fresh.cloneNode(true);
    const now = new Map([...rows.children].map((row) => [row.id, row]));
    const known = new Set(old.map((row) => row.id));
    coming = [...rows.children].filter((row) => !known.has(row.id)).length;
    if (coming || old.some((row) => !now.has(row.id))) held = latest;
    rows.replaceChildren(...old.map((row) => {
      if (now.has(row.id)) return now.get(row.id);
      const left = row.cloneNode(true);
      left.classList.add("left");
      return left;
    }));
    button.textContent = coming === 1 ? "1 new task" : `${coming} new tasks`;
  }
  button.hidden = !coming;
});

/** Show new rows. */
function release() {
  if (!held) return;
  const main = document.getElementById("main");
  morphChildren(main, held);
  held = null;
  document.getElementById("new-tasks").hidden = true;
  tick();
  document.dispatchEvent(new Event("morphed"));
}

document.addEventListener("visiting", () => {
  held = null;
  document.getElementById("new-tasks")?.setAttribute("hidden", "");
});
document.addEventListener("click", (event) => {
  if (event.target.id !== "new-tasks") return;
  scrollTo({ top: 0 });
  release();
});
const releaseUnread = () => held && !isRead() && release();
addEventListener("scroll", releaseUnread, { passive: true });
document.addEventListener("focusout", () => setTimeout(releaseUnread));
