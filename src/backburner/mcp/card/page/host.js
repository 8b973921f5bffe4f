// The host of the chat: JSON-RPC by postMessage, as MCP Apps (2026-01-26) has it.

const waiting = new Map(); // by the id of a request: who waits for its answer
const hears = new Map(); // by method: who hears of a notification
const answers = new Map(); // by method: who answers a request
let lastId = 0;
let can = {}; // what the host can do
let context = {}; // what it says of itself: theme, size and so on

const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const notify = (method, params = {}) => post({ method, params });

/** The result of a request to the host. */
function request(method, params, withinMs = 60000) {
  return new Promise((resolve, reject) => {
    const id = ++lastId;
    const timer = setTimeout(() => settle(id, { error: { message: "The host does not answer." } }), withinMs);
    waiting.set(id, { resolve, reject, timer });
    post({ id, method, params });
  });
}

function settle(id, { result, error }) {
  const who = waiting.get(id);
  if (!who) return;
  waiting.delete(id);
  clearTimeout(who.timer);
  if (error) who.reject(Object.assign(new Error(error.message || "The host refuses."), { code: error.code }));
  else who.resolve(result || {});
}

window.addEventListener("message", ({ source, data }) => {
  if (source !== window.parent || !data || data.jsonrpc !== "2.0") return;
  if (typeof data.method !== "string") return settle(data.id, data);
  if (data.id === undefined) return hears.get(data.method)?.(data.params || {});
  const answer = answers.get(data.method);
  if (answer) post({ id: data.id, result: answer(data.params || {}) || {} });
  else post({ id: data.id, error: { code: -32601, message: "Method not found" } });
});

/** Call a tool of the server's, which the host passes on. What goes wrong has the code of the server's error. */
async function callTool(name, args) {
  const result = await request("tools/call", { name, arguments: args });
  if (!result.isError && result.structuredContent) return result.structuredContent;
  const error = result.structuredContent?.error || {};
  const said = error.message || result.content?.find((block) => block.type === "text")?.text;
  throw Object.assign(new Error(said || "The server does not say."), { code: error.code });
}

// -- how the host looks

const VARIABLE = /^--(?:color|font|border|shadow)-[a-z0-9-]+$/;

function follow(changed) {
  context = { ...context, ...changed };
  const root = document.documentElement;
  if (changed.theme === "light" || changed.theme === "dark") root.dataset.theme = changed.theme;
  for (const [name, value] of Object.entries(changed.styles?.variables || {})) {
    // The page's own policy keeps a value with an address in it from being fetched.
    if (VARIABLE.test(name) && typeof value === "string") root.style.setProperty(name, value);
  }
  if (typeof changed.locale === "string") useLocale(changed.locale);
  root.classList.toggle("fullscreen", context.displayMode === "fullscreen");
  fit(context.containerDimensions || {}, context.safeAreaInsets);
}

/** Take the room that the host gives: a height of its own choice, or as much as the page needs up to a limit. */
function fit({ height, maxHeight }, insets) {
  const card = document.getElementById("card");
  const limit = [height, maxHeight].find((one) => Number.isFinite(one) && one > 0);
  card.classList.toggle("bounded", limit !== undefined);
  card.style.maxHeight = limit === undefined ? "" : `${limit}px`;
  for (const side of ["top", "right", "bottom", "left"]) {
    if (Number.isFinite(insets?.[side])) document.body.style.setProperty(`padding-${side}`, `${insets[side]}px`);
  }
}

let told = "";
function tellSize() {
  const { width } = document.documentElement.getBoundingClientRect();
  const size = { width: Math.ceil(width), height: Math.ceil(document.body.getBoundingClientRect().height) };
  if (JSON.stringify(size) === told) return;
  told = JSON.stringify(size);
  notify("ui/notifications/size-changed", size);
}

/** Shake hands with the host; then it begins to tell. */
async function greet() {
  const { hostCapabilities, hostContext } = await request("ui/initialize", {
    protocolVersion: "2026-01-26",
    appInfo: { name: "Backburner task card", version: "{VERSION}" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
  });
  can = hostCapabilities || {};
  follow(hostContext || {});
  notify("ui/notifications/initialized");
  new ResizeObserver(tellSize).observe(document.body);
}
