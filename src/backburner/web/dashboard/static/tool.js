// Form for a new task of a tool.

const place = document.getElementById("submit");
if (place) {
  const form = inputsForm(JSON.parse(document.getElementById("schema").textContent));
  const problem = place.querySelector(":scope > .problem");
  const send = document.getElementById("send");
  const valueOf = (id) => document.getElementById(id).value.trim();
  place.querySelector(".slot").replaceWith(form.element);

  const submit = async () => {
    problem.hidden = true;
    let inputs;
    try {
      inputs = form.read();
    } catch (error) {
      return void form.fail(error);
    }
    const tags = valueOf("tags").split(",").map((tag) => tag.trim()).filter(Boolean);
    const body = { tool: place.dataset.tool, inputs, tags, priority: Number(valueOf("priority")), queue: valueOf("queue") || undefined };
    send.disabled = true;
    try {
      const task = await api("POST", "/tasks", body);
      location.assign(`${root}/dashboard/tasks/${task.task_id}`);
    } catch (error) {
      send.disabled = false;
      if (error.code === "invalid_inputs") return void form.fail(error);
      problem.textContent = visible(error.message);
      problem.hidden = false;
    }
  };
  send.addEventListener("click", submit);
  place.addEventListener("keydown", (event) => {
    const isLine = event.target.tagName === "INPUT" && event.target.type !== "checkbox";
    if (event.key !== "Enter" || event.isComposing || !(isLine || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    submit();
  });
  // A page restored from the browser's cache may be submitted again.
  addEventListener("pageshow", () => (send.disabled = false));
}
