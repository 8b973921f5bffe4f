// User actions. Every change is an API call.

const root = document.body.dataset.root;

/** Show a message for a few seconds. */
function say(text, bad = false) {
  const said = document.getElementById("said");
  said.textContent = visible(text);
  said.className = bad ? "said bad" : "said";
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (said.textContent = ""), bad ? 12000 : 6000);
}

/** Call the API. Throws an Error with the server's message, `code` and `details`. */
async function api(method, path, body) {
  const json = body === undefined ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(`${root}/api/v1${path}`, { method, ...json }).catch(() => {
    throw new Error("The server cannot be reached");
  });
  const text = await answer.text();
  const values = text ? JSON.parse(text) : null;
  if (!answer.ok) throw Object.assign(new Error(values?.detail || answer.statusText), { code: values?.code, details: values?.details });
  return values;
}

/** Ask in a dialog of the page (`<dialog id=…>`). Returns true if confirmed. */
function agreed(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}

/** `<button data-post="/tasks/…/cancel" data-body="{…}" data-ask="dialog-id" data-said="…" data-go="…">` */
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-post], button[data-delete]");
  if (!button) return;
  const { post, delete: gone, body, ask, said, go } = button.dataset;
  if (ask && !(await agreed(document.getElementById(ask)))) return;
  button.disabled = true;
  try {
    if (post) await api("POST", post, JSON.parse(body || "{}"));
    else await api("DELETE", gone);
    if (go) location.assign(root + go);
    else say(said || "Done");
  } catch (error) {
    say(error.message, true);
  } finally {
    button.disabled = false;
  }
});
