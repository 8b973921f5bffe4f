// Readout of a chart at the pointer, in local time.

let pointed = null;

/** A title has the form "Tue 12:30 UTC: description". */
function inOwnTime(column) {
  const time = new Date(column.dataset.since).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
  return `${time}: ${column.querySelector("title").textContent.split(" UTC: ")[1]}`;
}

function sayColumn() {
  for (const figure of document.querySelectorAll(".charts figure")) {
    const line = figure.querySelector("[data-readout]");
    const column = pointed && figure.contains(pointed) ? pointed : null;
    line.dataset.rest ||= line.textContent;
    const text = column ? inOwnTime(column) : line.dataset.rest;
    if (line.textContent !== text) line.textContent = text;
  }
}

document.addEventListener("pointerover", (event) => {
  const column = event.target.closest?.(".column") ?? null;
  if (column === pointed) return;
  pointed = column;
  sayColumn();
});
document.addEventListener("morphed", sayColumn);
