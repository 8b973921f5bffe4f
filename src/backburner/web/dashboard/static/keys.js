// Keyboard shortcuts of all pages, disabled while typing. `[data-row]` is a list row, `a[data-open]` its link,
// `[data-tick]` its checkbox; `data-key="/"` is the search field.

const PAGES = { o: ["Overview", "/"], t: ["Tasks", "/dashboard/tasks"], l: ["Tools", "/dashboard/tools"], q: ["Queues", "/dashboard/queues"],
  w: ["Workers", "/dashboard/workers"], c: ["Clients", "/dashboard/clients"] };
const KEYS = [
  [["/"], "Search or filter"],
  [["j", "↓"], "Next row"],
  [["k", "↑"], "Previous row"],
  [["Enter"], "Open"],
  [["x"], "Select or deselect"],
  [["Esc"], "Leave the row or the field"],
  ...Object.entries(PAGES).map(([key, [title]]) => [["g", key], title]),
  [["?"], "Keyboard shortcuts"],
];

function isTyping(target) {
  if (target.isContentEditable || target.closest?.("textarea, select, dialog")) return true;
  return target.tagName === "INPUT" && !["checkbox", "radio", "button", "submit"].includes(target.type);
}

function showKeys() {
  let dialog = document.getElementById("keys");
  if (!dialog) {
    dialog = element("dialog", "", { id: "keys", "aria-labelledby": "keys-title" });
    const list = element("dl", "", { class: "keys" });
    for (const [keys, title] of KEYS) {
      const term = element("dt");
      keys.forEach((key, at) => {
        if (at) term.append(keys[0] === "g" ? " then " : " or ");
        term.append(element("kbd", key));
      });
      list.append(term, element("dd", title));
    }
    const form = element("form", "", { method: "dialog" });
    form.append(element("button", "Close"));
    dialog.append(element("h2", "Keyboard shortcuts", { id: "keys-title" }), list, form);
    document.body.append(dialog);
  }
  dialog.showModal();
}

function moveRow(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement?.closest("[data-row]"));
  const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  row?.querySelector("a[data-open]")?.focus();
  row?.scrollIntoView({ block: "nearest" });
}

let afterG = 0;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (event.target.closest?.("[data-row], [data-key]")) event.target.blur();
    return;
  }
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const row = event.target.closest?.("[data-row]");
  const page = event.timeStamp - afterG < 1500 && Object.hasOwn(PAGES, event.key) && PAGES[event.key];
  afterG = event.key === "g" ? event.timeStamp : 0;
  const search = document.querySelector('[data-key="/"]');
  if (page) location.assign(document.body.dataset.root + page[1]);
  else if (event.key === "?") showKeys();
  else if (event.key === "/" && search) {
    search.focus();
    search.select();
  } else if (event.key === "j" || (event.key === "ArrowDown" && row)) moveRow(1);
  else if (event.key === "k" || (event.key === "ArrowUp" && row)) moveRow(-1);
  else if (event.key === "x" && row) row.querySelector("[data-tick]")?.click();
  else return;
  event.preventDefault();
});
document.addEventListener("click", (event) => event.target.closest?.("#show-keys") && showKeys());
