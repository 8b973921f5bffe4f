// Inputs of a tool: a form generated from its schema, or JSON. Requires text.js and forms.js.
//
//   const form = inputsForm(schema, values);   // `values` are the initial inputs; default: those of the schema
//   page.append(form.element);                 // a <div class="inputs">; without <form> and submit button
//   const inputs = form.read();                // the current inputs; throws an Error for `fail`
//   form.fail(error);                          // shows an error of `read` or `api` at its field or on top
//
// Texts, numbers, booleans, choices and lists of these have fields. Everything else (objects, oneOf, several types)
// is entered as JSON.

/** Resolve references, and separate null from other types. */
function plainSchema(schema, whole, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 20) return { schema: {}, nullable: false };
  const { $ref, allOf, anyOf, oneOf, ...own } = schema;
  const on = (one, more = {}) => plainSchema({ ...one, ...own, ...more }, whole, depth + 1);
  if (typeof $ref === "string" && $ref.startsWith("#/")) {
    const steps = $ref.slice(2).split("/").map((step) => decodeURIComponent(step).replace(/~1/g, "/").replace(/~0/g, "~"));
    return on(steps.reduce((part, step) => (part && Object.hasOwn(part, step) ? part[step] : undefined), whole), Object.fromEntries(Object.entries({ allOf, anyOf, oneOf }).filter(([, one]) => one)));
  }
  if (allOf?.length === 1 && !anyOf && !oneOf) return on(allOf[0]);
  const either = Array.isArray(anyOf) ? anyOf : Array.isArray(oneOf) ? oneOf : null;
  if (either && !allOf) {
    const others = either.filter((one) => one?.type !== "null");
    if (others.length === 1) return { schema: on(others[0]).schema, nullable: others.length < either.length };
  }
  if (Array.isArray(own.type)) {
    const types = own.type.filter((type) => type !== "null");
    return { schema: types.length === 1 ? { ...own, type: types[0] } : { ...own, type: "any" }, nullable: own.type.includes("null") };
  }
  if ("const" in own) return { schema: { ...own, enum: [own.const] }, nullable: false };
  return { schema, nullable: false };
}

/** Example value of a schema. */
function exampleOf(schema, whole, depth = 0) {
  const { schema: plain } = plainSchema(schema, whole);
  if (plain.default != null) return plain.default;
  const options = optionsOf(plain);
  if (options) return options[0]?.[0];
  if (depth > 3) return "…";
  const on = (one) => exampleOf(one, whole, depth + 1);
  const either = plain.anyOf || plain.oneOf;
  if (either?.length) return on(either[0]);
  if (plain.type === "array") return [on(plain.items)];
  if (plain.type !== "object") return { integer: 0, number: 0.5, boolean: false }[plain.type] ?? "…";
  if (plain.properties) return Object.fromEntries(Object.entries(plain.properties).slice(0, 8).map(([name, one]) => [name, on(one)]));
  return { "…": on(plain.additionalProperties) };
}

const PLAIN = { string: (value) => typeof value === "string", number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value), boolean: (value) => typeof value === "boolean" };
const isPlain = (schema) => Object.hasOwn(PLAIN, schema.type) && !optionsOf(schema);

/** Control of a value; extends `controlFor` of forms.js. `schema.default` is the initial value. */
function inputControl(schema, id, nullable) {
  const { type, default: first } = schema;
  const options = optionsOf(schema);
  if (options) {
    const known = options.some(([value]) => value === first);
    return known || first == null ? chooseOne(options, known ? first : undefined, id) : writeJson(schema, id);
  }
  if (type === "array") {
    const several = optionsOf(schema.items || {});
    const fits = first == null || Array.isArray(first);
    if (several && fits && (first ?? []).every((one) => several.some(([value]) => value === one))) return chooseSeveral(several, first ?? [], id);
    const of = schema.items || {};
    if (fits && isPlain(of) && of.type !== "boolean" && (first ?? []).every((one) => PLAIN[of.type](one) && /^[^\r\n]+$/.test(one))) {
      return writeLines(of, first ?? [], id);
    }
    return writeJson(schema, id);
  }
  if (!isPlain(schema) || (first != null && !PLAIN[type](first))) return writeJson(schema, id);
  if (type === "boolean" && first == null && (nullable || !schema.required)) {
    return chooseOne([[true, "Yes"], [false, "No"]], undefined, id);
  }
  if (type === "string" && first && schema.format === "date-time") return writeText({ ...schema, format: "" }, id);
  if (type === "string" && !schema.format && !(schema.maxLength <= 200)) return writeText({ ...schema, format: "lines" }, id);
  return controlFor({ ...schema, default: first ?? undefined }, id);
}

/** A list, one item per line. */
function writeLines(of, first, id) {
  const input = element("textarea", "", { id, rows: 2, spellcheck: "false", placeholder: "One per line" });
  input.value = first.join("\n");
  const lines = () => input.value.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
  const numbers = of.type !== "string";
  input.addEventListener("input", () => input.setCustomValidity(numbers && lines().some((line) => !Number.isFinite(Number(line))) ? "Each line must be a number" : ""));
  return { input, read: () => (lines().length ? lines().map((line) => (numbers ? Number(line) : line)) : undefined) };
}

/** One input: name, row, and `read`, which throws with the invalid `input`. */
function inputField(name, given, whole, required) {
  const { schema, nullable } = plainSchema(whole.properties[name], whole);
  const items = schema.type === "array" && schema.items ? { items: plainSchema(schema.items, whole).schema } : {};
  const before = given === undefined ? schema.default : given;
  const shown = { ...schema, ...items, title: name, default: before ?? undefined, required };
  const { row, read, input } = field(name, shown, required && !nullable, (one, id) => inputControl(one, id, nullable));
  if (input.placeholder === "JSON") input.placeholder = JSON.stringify(exampleOf(schema, whole)).slice(0, 200);
  const problem = element("p", "", { class: "problem small", id: `${input.id}-problem`, hidden: true });
  row.dataset.name = name;
  row.append(problem);
  /** Empty fields: an empty text, null where allowed, otherwise the default. */
  const emptied = () => (given === null || (nullable && before != null) ? null : schema.type === "string" && before ? "" : undefined);
  const value = () => {
    const found = read();
    const nothing = found === undefined || (Array.isArray(found) && !found.length && !required && !before?.length);
    return nothing ? emptied() : found;
  };
  const fail = (text) => {
    problem.textContent = visible(text);
    problem.hidden = !text;
    input.setAttribute("aria-invalid", Boolean(text));
    const described = [schema.description && `${input.id}-help`, text && problem.id].filter(Boolean).join(" ");
    if (described) input.setAttribute("aria-describedby", described);
    else input.removeAttribute("aria-describedby");
  };
  input.addEventListener("input", () => fail(""));
  return { name, row, read: value, input, fail };
}

function fieldsOf(schema, values) {
  const required = Array.isArray(schema.required) ? schema.required : [];
  const parts = Object.keys(schema.properties).map((name) => inputField(name, Object.hasOwn(values, name) ? values[name] : undefined, schema, required.includes(name)));
  const box = element("div", "", { class: "fields" });
  box.append(...parts.map(({ row }) => row));
  if (!parts.length) box.append(element("p", "No inputs.", { class: "dim" }));
  const read = (lenient) => {
    const found = [];
    for (const part of parts) {
      try {
        const value = part.read();
        if (value !== undefined) found.push([part.name, value]);
      } catch (error) {
        if (!lenient) throw error;
      }
    }
    return Object.fromEntries(found);
  };
  return { element: box, read, parts };
}

function jsonOf(values) {
  const text = element("textarea", "", { class: "json", rows: 10, spellcheck: "false", "aria-label": "Inputs as JSON" });
  text.value = JSON.stringify(values, null, 2);
  const read = () => {
    let found;
    try {
      found = JSON.parse(text.value);
    } catch (error) {
      throw Object.assign(new Error(`Invalid JSON: ${error.message}`), { input: text });
    }
    if (!found || typeof found !== "object" || Array.isArray(found)) throw Object.assign(new Error("The inputs must be an object: { … }"), { input: text });
    return found;
  };
  return { element: text, read, parts: [] };
}

function inputsForm(schema, values) {
  const whole = schema && typeof schema === "object" ? schema : {};
  const named = whole.properties && typeof whole.properties === "object" ? whole.properties : null;
  const canBeForm = Boolean(named) && !whole.anyOf && !whole.oneOf && !whole.allOf;
  const misfit = (given) => Object.keys(given).find((name) => !Object.hasOwn(named, name));
  const box = element("div", "", { class: "inputs" });
  const problem = element("p", "", { class: "problem", role: "alert", hidden: true });
  const views = element("div", "", { class: "views", role: "group", "aria-label": "Input format" });
  const buttons = ["Form", "JSON"].map((title) => element("button", title, { type: "button" }));
  let view;

  const fail = (error) => {
    for (const part of view.parts) part.fail("");
    const at = String(error?.details?.field ?? "").split("/")[0];
    const part = view.parts.find(({ name, input }) => (error?.input ? input === error.input : error?.code === "invalid_inputs" && name === at));
    const text = error?.code === "invalid_inputs" && part ? error.details.reason : error?.message;
    if (part) part.fail(text);
    problem.textContent = part || !error ? "" : visible(text);
    problem.hidden = Boolean(part) || !error;
    (part?.input ?? error?.input)?.focus();
  };
  const show = (asForm, given) => {
    view = asForm ? fieldsOf(whole, given) : jsonOf(given);
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", (at === 0) === asForm));
    box.replaceChildren(views, problem, view.element);
  };
  const turn = (asForm) => {
    try {
      const given = view.read(true);
      const extra = asForm && misfit(given);
      if (extra) throw new Error(`The form has no field for ${JSON.stringify(extra)}`);
      show(asForm, given);
      fail(null);
    } catch (error) {
      fail(error);
    }
  };
  buttons.forEach((button, at) => button.addEventListener("click", () => button.getAttribute("aria-pressed") !== "true" && turn(at === 0)));
  views.append(...buttons);
  views.hidden = !canBeForm || !Object.keys(named).length;
  show(canBeForm && misfit(values ?? {}) === undefined, values ?? {});
  return {
    element: box,
    fail,
    read: () => {
      fail(null);
      return view.read();
    },
  };
}
