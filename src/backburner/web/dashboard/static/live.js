// The page goes on: the server sends it anew when it is another, and what differs is changed in place, so that
// focus, open parts and ticked boxes stay. What is `data-keep` is its script's own.

const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.id === other.id;

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morphChildren(old, fresh);
}

const isBlank = (node) => node.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();

/** The next of these siblings that is like one that has no id; so what came or went before it costs nothing. */
function alike(at, wanted) {
  while (at && (at.id || !same(at, wanted) || at.className !== wanted.className)) at = at.nextSibling;
  return at;
}

function morphChildren(old, fresh) {
  const wantedIds = new Set([...fresh.children].map((one) => one.id));
  // First what is gone, so that what stays need not move: an element that moves loses its focus.
  for (const one of [...old.children]) if (one.id && !wantedIds.has(one.id) && !one.hasAttribute("data-keep")) one.remove();
  const named = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    // Space that is only in one of them must not put the others out of step.
    while (at && isBlank(at) && !isBlank(wanted)) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
    const here = at && !at.id && same(at, wanted) ? at : null;
    const known = wanted.id ? named.get(wanted.id) : here || (wanted.nodeType === Node.ELEMENT_NODE ? alike(at, wanted) : null);
    if (known && same(known, wanted)) {
      if (known === at) at = at.nextSibling;
      else old.insertBefore(known, at);
      morph(known, wanted);
    } else {
      old.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    if (!(at.nodeType === Node.ELEMENT_NODE && at.hasAttribute("data-keep"))) at.remove();
    at = next;
  }
}

/** Take the page as the server has it now. Before, `morphing` lets scripts have a hand in it; `morphed` tells them that something may have changed. */
function showPage(html) {
  const fresh = new DOMParser().parseFromString(`<main>${html}</main>`, "text/html").querySelector("main");
  document.dispatchEvent(new CustomEvent("morphing", { detail: fresh }));
  morphChildren(document.getElementById("main"), fresh);
  tick();
  document.dispatchEvent(new Event("morphed"));
}

/** Times that count on between two pages: `<time datetime=… data-age>`, as "3 min ago", or `data-age="since"`. */
function tick() {
  for (const one of document.querySelectorAll("time[data-age]")) {
    const age = (Date.now() - Date.parse(one.dateTime)) / 1000;
    const text = one.dataset.age === "since" ? span(age) : age < 1 ? "now" : `${span(age)} ago`;
    if (one.textContent !== text) one.textContent = text;
    one.title ||= new Date(one.dateTime).toLocaleString();
  }
}

let source = null;

function follow() {
  const main = document.getElementById("main");
  if (source || !main.hasAttribute("data-live") || document.hidden) return;
  const address = new URL(location.href);
  address.searchParams.set("live", "1");
  source = new EventSource(address);
  const line = document.getElementById("connection");
  source.addEventListener("open", () => (line.hidden = true));
  source.addEventListener("page", (event) => showPage(JSON.parse(event.data)));
  source.addEventListener("gone", () => {
    rest();
    main.removeAttribute("data-live");
    if (main.dataset.gone !== undefined) return;
    main.dataset.gone = "";
    main.prepend(element("p", "This is not kept any more: it has expired, or was deleted. What you see is how it was last.", { class: "gone", role: "alert" }));
    document.dispatchEvent(new Event("gone"));
  });
  source.addEventListener("error", () => {
    line.textContent = "The server is away; trying again";
    line.hidden = false;
    // A browser gives up for good when the answer is no stream, as after a restart without this page.
    if (source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(follow, 5000);
    }
  });
}

function rest() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
addEventListener("pagehide", rest);
addEventListener("pageshow", follow);
tick();
setInterval(tick, 1000);
