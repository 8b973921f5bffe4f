// A question of a task as a form, from the schema of its elicitation. It is no <form>: hosts may forbid these.

let fields = 0;

/** The ways to answer one property of a schema: its element, and `read`, which gives its value or throws. */
function field(name, schema, required, make = controlFor) {
  const id = `field-${++fields}`;
  const title = schema.title || name;
  const row = element("div", "", { class: "field" });
  const control = make(schema, id);
  if (control.group) {
    control.input.prepend(element("legend", title));
    row.append(control.input);
  } else if (control.input.type === "checkbox") {
    row.className = "field check";
    row.append(control.input, element("label", title, { for: id }));
  } else {
    row.append(element("label", required ? title : `${title} (optional)`, { for: id }), control.input);
  }
  if (schema.description) {
    row.append(element("small", schema.description, { id: `${id}-help`, dir: "auto" }));
    control.input.setAttribute("aria-describedby", `${id}-help`);
  }
  if (required && !control.group && control.input.type !== "checkbox") control.input.required = true;
  const read = () => {
    const bad = !control.group && !control.input.checkValidity();
    control.input.setAttribute("aria-invalid", bad);
    if (bad) throw Object.assign(new Error(`${inLine(title)}: ${control.input.validationMessage}`), { input: control.input });
    return control.read();
  };
  return { row, read, input: control.input };
}

const optionsOf = (schema) =>
  (schema.oneOf || schema.anyOf)?.every?.((one) => one && "const" in one)
    ? (schema.oneOf || schema.anyOf).map((one) => [one.const, one.title ?? one.const])
    : Array.isArray(schema.enum) && schema.enum.map((value, at) => [value, schema.enumNames?.[at] ?? value]);

function controlFor(schema, id) {
  const options = optionsOf(schema);
  if (options) return chooseOne(options, schema.default, id);
  const several = schema.type === "array" && optionsOf(schema.items || {});
  if (several) return chooseSeveral(several, schema.default || [], id);
  if (schema.type === "boolean") {
    const input = element("input", "", { type: "checkbox", id });
    input.checked = schema.default === true;
    return { input, read: () => input.checked };
  }
  if (schema.type === "number" || schema.type === "integer") return writeNumber(schema, id);
  if (schema.type === "string" || schema.type === undefined) return writeText(schema, id);
  return writeJson(schema, id);
}

function chooseOne(options, chosen, id) {
  const input = element("select", "", { id });
  if (chosen === undefined) input.append(element("option", "Choose…", { value: "" }));
  options.forEach(([value, title], at) => {
    const option = element("option", String(title), { value: String(at) });
    option.selected = value === chosen;
    input.append(option);
  });
  return { input, read: () => (input.value === "" ? undefined : options[Number(input.value)][0]) };
}

function chooseSeveral(options, chosen, id) {
  const input = element("fieldset", "", { id, class: "choices" });
  const boxes = options.map(([value, title]) => {
    const box = element("input", "", { type: "checkbox" });
    const label = element("label");
    box.checked = chosen.includes(value);
    label.append(box, element("span", String(title)));
    input.append(label);
    return [box, value];
  });
  return { group: true, input, read: () => boxes.filter(([box]) => box.checked).map(([, value]) => value) };
}

function writeJson(schema, id) {
  const input = element("textarea", "", { id, rows: 3, spellcheck: "false", placeholder: "JSON" });
  input.value = schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2);
  const read = () => (input.value.trim() ? JSON.parse(input.value) : undefined);
  input.addEventListener("input", () => {
    try {
      read();
      input.setCustomValidity("");
    } catch (error) {
      input.setCustomValidity(`This is not JSON: ${error.message}`);
    }
  });
  return { input, read };
}

function writeNumber(schema, id) {
  const step = schema.type === "integer" ? "1" : "any";
  const input = element("input", "", { type: "number", id, step, min: schema.minimum, max: schema.maximum });
  input.value = schema.default ?? "";
  return { input, read: () => (input.value === "" ? undefined : Number(input.value)) };
}

const KINDS = { email: "email", uri: "url", date: "date", "date-time": "datetime-local", password: "password" };

function writeText(schema, id) {
  const long = schema.maxLength > 200 || schema.format === "lines";
  const limits = { id, minlength: schema.minLength, maxlength: schema.maxLength, dir: "auto", autocomplete: "off" };
  const kind = KINDS[Object.hasOwn(KINDS, schema.format) ? schema.format : ""] || "text";
  const input = long ? element("textarea", "", { rows: 3, ...limits }) : element("input", "", { type: kind, ...limits });
  if (typeof schema.default === "string") input.value = schema.default;
  const moment = () => (input.value ? new Date(input.value).toISOString() : "");
  return { input, read: () => (kind === "datetime-local" ? moment() : input.value) || undefined };
}

/** A question, and `send(key, answer)`, which rejects with what is wrong with the answer. */
function question({ key, method, params }, send) {
  const box = element("div", "", { class: "question", role: "group", "aria-label": "Question" });
  const link = params.mode === "url" && /^https?:\/\//i.test(params.url) ? params.url : null;
  box.append(element("p", params.message || method, { class: "asked", dir: "auto" }));
  if (method !== "elicitation/create") {
    box.append(element("small", "This is for the host to answer; the card cannot."));
    return box;
  }
  const schema = params.requestedSchema || {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  const parts = Object.entries(schema.properties || {}).map(([name, one]) => [name, field(name, one || {}, required.includes(name))]);
  const problem = element("p", "", { class: "problem", role: "alert", hidden: true });
  const buttons = element("div", "", { class: "buttons" });
  const accept = element("button", link ? "Done" : parts.length ? "Send" : "Yes", { type: "button", class: "main" });
  const decline = element("button", parts.length || link ? "Decline" : "No", { type: "button" });
  const read = () => Object.fromEntries(parts.map(([name, part]) => [name, part.read()]).filter(([, value]) => value !== undefined));
  const give = async (action) => {
    problem.hidden = true;
    accept.disabled = decline.disabled = true;
    try {
      await send(key, action === "accept" ? { action, content: link ? {} : read() } : { action });
    } catch (error) {
      problem.textContent = visible(error.message);
      problem.hidden = false;
      accept.disabled = decline.disabled = false;
      error.input?.focus();
    }
  };
  accept.addEventListener("click", () => give("accept"));
  decline.addEventListener("click", () => give("decline"));
  for (const [, { input }] of parts) {
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && input.tagName === "INPUT" && !event.isComposing) give("accept");
    });
  }
  if (link) {
    const open = element("button", "Open", { type: "button", class: "main" });
    open.addEventListener("click", () => request("ui/open-link", { url: link }).catch((error) => {
      problem.textContent = visible(error.message);
      problem.hidden = false;
    }));
    accept.className = "";
    box.append(element("small", link));
    buttons.append(open);
  }
  buttons.append(accept, decline);
  box.append(...parts.map(([, part]) => part.row), problem, buttons);
  return box;
}
