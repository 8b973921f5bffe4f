// Task page. Requires text.js, forms.js, inputs.js, actions.js and log.js.

const byId = (id) => document.getElementById(id);

/** Absolute times in the local format. */
function moments() {
  const words = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  for (const one of document.querySelectorAll("time[data-moment]")) one.textContent = words.format(new Date(one.dateTime));
}

// -- questions

let askedKeys = "";

function showQuestions() {
  const place = byId("questions");
  if (!place) return void (askedKeys = "");
  const asked = JSON.parse(byId("asked").textContent);
  const keys = JSON.stringify(asked.map((one) => one.key));
  if (keys === askedKeys && place.childElementCount) return; // keep what is being typed
  askedKeys = keys;
  place.replaceChildren(...asked.map(({ key, method, message, schema }) => question({ key, method, params: { message, requestedSchema: schema } }, answer)));
}

async function answer(key, given) {
  await api("POST", `/tasks/${taskId}/answers`, { answers: { [key]: given } });
  say("Answered");
}

// -- clipboard

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // without HTTPS there is no clipboard API, but a selection can be copied
    const box = element("textarea", "", { class: "unseen", "aria-hidden": true });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  say("Copied");
}

const PATHS = { inputs: `/tasks/${taskId}`, result: `/tasks/${taskId}/result` };

// -- artifacts

const MOST_OF_FILE = 65536;

/** Show the beginning of an artifact. */
async function preview(button) {
  const place = byId(button.getAttribute("aria-controls"));
  const open = button.getAttribute("aria-expanded") !== "true";
  if (open && !place.textContent) {
    const answer = await fetch(button.dataset.preview, { headers: { Range: `bytes=0-${MOST_OF_FILE - 1}` } });
    if (!answer.ok) throw new Error("This artifact no longer exists.");
    const size = Number(button.dataset.size);
    let text = (await answer.text()).slice(0, MOST_OF_FILE);
    if (size <= MOST_OF_FILE && button.dataset.type.endsWith("json")) {
      try {
        text = JSON.stringify(JSON.parse(text), null, 2);
      } catch { /* not JSON: show it unchanged */ }
    }
    place.textContent = visible(text) + (size > MOST_OF_FILE ? `\n… ${bytes(size)} total` : "") || "Empty file.";
  }
  place.hidden = !open;
  button.setAttribute("aria-expanded", open);
  button.textContent = open ? "Hide" : "Show";
}

// -- retry with other inputs

let form = null;

async function edit() {
  const [{ inputs, tool_name: name }, { tools }] = await Promise.all([api("GET", `/tasks/${taskId}`), api("GET", "/tools")]);
  form = inputsForm(tools.find((one) => one.tool_name === name).input_schema, inputs);
  byId("new-inputs").replaceChildren(form.element);
  byId("editing").showModal();
}

async function submitNew(button) {
  button.disabled = true;
  try {
    const made = await api("POST", `/tasks/${taskId}/retry`, { inputs: form.read() });
    location.assign(`${root}/dashboard/tasks/${made.task_id}`);
  } catch (error) {
    form.fail(error);
  } finally {
    button.disabled = false;
  }
}

async function cancel() {
  byId("reason").value = "";
  if (!(await agreed(byId("cancelling")))) return;
  const reason = byId("reason").value.trim();
  await api("POST", `/tasks/${taskId}/cancel`, reason ? { reason } : {});
  say("Cancel requested");
}

// -- clicks

const CLICKS = {
  "#cancel": cancel,
  "#edit": edit,
  "#submit-new": submitNew,
  "#leave-new": () => byId("editing").close(),
  "[data-copy]": (button) => copy(button.dataset.copy),
  "[data-copy-json]": async ({ dataset: { copyJson: name } }) => copy(JSON.stringify((await api("GET", PATHS[name]))[name], null, 2)),
  "[data-preview]": preview,
};

document.addEventListener("click", async ({ target }) => {
  for (const [which, act] of Object.entries(CLICKS)) {
    const button = target.closest?.(which);
    if (button) await Promise.resolve(act(button)).catch((error) => say(error.message, true));
  }
});
document.addEventListener("morphed", () => {
  moments();
  showQuestions();
});
moments();
showQuestions();
