// Text that is not ours: shown by textContent alone, without what moves, hides or turns it.

const ANSI = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[@-Z\\-_]/g;
// Control, format and lone surrogate characters, and letters that are drawn as nothing. What joins letters stays.
const UNSEEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0]/gu;

const escaped = (character) => {
  const code = character.codePointAt(0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
};

/** Any value as text that is safe to look at; a text may have several lines. */
function visible(value) {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  return text.replace(ANSI, "").replace(/\r\n/g, "\n").replace(UNSEEN, escaped);
}

/** The same in one line. */
const inLine = (value) => visible(value).replace(/\s+/g, " ").trim();

/** A line of a log: of what was written over itself, the last. */
function logLine(text) {
  const parts = text.replace(ANSI, "").split("\r").filter((part) => part.trim());
  return visible(parts.length ? parts[parts.length - 1] : "");
}

/** A new element with text and attributes. */
function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = visible(text);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  return made;
}

const number = (value, options) => new Intl.NumberFormat(locale, options).format(value);
let locale;

/** A BCP 47 tag that a host gave, if this browser knows it. */
function useLocale(tag) {
  try {
    locale = Intl.getCanonicalLocales(tag)[0];
  } catch {
    locale = undefined;
  }
}

/** A span of time in words, as exact as its length asks for. */
function span(seconds, exact = false) {
  const whole = Math.max(0, Math.round(seconds));
  if (exact && seconds < 10) return `${number(Math.max(0, seconds), { maximumFractionDigits: 1 })} s`;
  if (whole < 60) return `${whole} s`;
  if (whole < 600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 3600) return `${Math.round(whole / 60)} min`;
  const hours = Math.floor(whole / 3600);
  return hours < 48 ? `${hours} h ${Math.round((whole % 3600) / 60)} min` : `${Math.round(whole / 86400)} days`;
}

/** As `span`, of what is only about right. */
function roughly(seconds) {
  if (seconds < 5) return "a few seconds";
  if (seconds < 60) return `about ${Math.ceil(seconds / 5) * 5} s`;
  return `about ${seconds < 600 ? `${Math.round(seconds / 60)} min` : span(Math.round(seconds / 60) * 60)}`;
}

function bytes(size) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (size >= 1000 && at < units.length - 1) [size, at] = [size / 1000, at + 1];
  return `${number(size, { maximumFractionDigits: at && size < 10 ? 1 : 0 })} ${units[at]}`;
}
