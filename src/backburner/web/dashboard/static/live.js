// Live updates: the server sends the changed page, and differences are applied in place. Focus, open details and
// checked boxes stay. Elements with `data-keep` belong to their scripts.

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

/** The next sibling that matches an element without id. */
function alike(at, wanted) {
  while (at && (at.id || !same(at, wanted) || at.className !== wanted.className)) at = at.nextSibling;
  return at;
}

function morphChildren(old, fresh) {
  const wantedIds = new Set([...fresh.children].map((one) => one.id));
  // Remove first, so that remaining elements need not move: a moved element loses its focus.
  for (const one of [...old.children]) if (one.id && !wantedIds.has(one.id) && !one.hasAttribute("data-keep")) one.remove();
  const named = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    // Skip whitespace that only one of both has.
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

/** Apply the server's page. Fires `morphing` before, so that scripts can modify it, and `morphed` after. */
function showPage(html) {
  const fresh = new DOMParser().parseFromString(`<main>${html}</main>`, "text/html").querySelector("main");
  document.dispatchEvent(new CustomEvent("morphing", { detail: fresh }));
  morphChildren(document.getElementById("main"), fresh);
  tick();
  document.dispatchEvent(new Event("morphed"));
}

/** Update relative times: `<time datetime=… data-age>` as "3 min ago", or as a duration with `data-age="since"`. */
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
    main.prepend(element("p", "This task has expired or was deleted. The page shows its last state.", { class: "gone", role: "alert" }));
    document.dispatchEvent(new Event("gone"));
  });
  source.addEventListener("error", () => {
    line.textContent = "Server not reachable; retrying";
    line.hidden = false;
    // A browser stops retrying when the response is no stream, for example after a restart.
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
