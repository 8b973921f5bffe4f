// What a chart says where the pointer is, in the reader's own time; the same is in the table below.

let pointed = null;

function sayColumn() {
  for (const figure of document.querySelectorAll(".charts figure")) {
    const line = figure.querySelector("[data-readout]");
    const column = pointed && figure.contains(pointed) ? pointed : null;
    line.dataset.rest ||= line.textContent;
    const time = column && new Date(column.dataset.since);
    const text = column ? `${time.toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" })}: ${column.dataset.said}` : line.dataset.rest;
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
