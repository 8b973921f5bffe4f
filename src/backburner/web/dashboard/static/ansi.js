// Terminal colours as CSS classes; other escapes are removed. Requires text.js.

const SGR = /\u001b\[([0-9;:]*)m/g;
// Upper ends on the colour wheel of red, yellow, green, cyan, blue and magenta as perceived.
const HUES = [[0.4, 1], [1.4, 3], [2.6, 2], [3.3, 6], [4.6, 4], [5.6, 5], [6, 1]];

/** The nearest of the sixteen terminal colours, which are readable on light and dark. */
function nearest(red, green, blue) {
  const [most, least] = [Math.max(red, green, blue), Math.min(red, green, blue)];
  const lightness = (most + least) / 2, spread = most - least;
  if (spread < 40) return lightness < 64 ? 0 : lightness < 128 ? 8 : lightness < 208 ? 7 : 15;
  const sector = most === red ? ((green - blue) / spread + 6) % 6 : most === green ? (blue - red) / spread + 2 : (red - green) / spread + 4;
  return HUES.find(([limit]) => sector <= limit)[1] + (lightness > 150 ? 8 : 0);
}

function of256(number) {
  if (number < 16) return number;
  if (number > 231) return nearest(...Array(3).fill(8 + 10 * (number - 232)));
  const part = (value) => (value ? 55 + 40 * value : 0);
  const at = number - 16;
  return nearest(part(Math.floor(at / 36)), part(Math.floor(at / 6) % 6), part(at % 6));
}

/** Parse `38;5;n` or `38;2;r;g;b` at `at`. Returns the colour and the count of numbers. */
function extended(codes, at) {
  if (codes[at + 1] === 5) return [of256(Math.min(255, codes[at + 2] || 0)), 3];
  if (codes[at + 1] === 2) return [nearest(...codes.slice(at + 2, at + 5).map((one) => Math.min(255, one || 0))), 5];
  return [null, 1];
}

function turn(now, codes) {
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] || 0;
    if (code === 0) now = {};
    else if (code === 1) now.bold = "sb";
    else if (code === 2) now.dim = "sd";
    else if (code === 4) now.underline = "su";
    else if (code === 22) now.bold = now.dim = "";
    else if (code === 24) now.underline = "";
    else if (code === 39) now.front = "";
    else if (code === 49) now.back = "";
    else if (code >= 30 && code <= 37) now.front = `f${code - 30}`;
    else if (code >= 90 && code <= 97) now.front = `f${code - 82}`;
    else if (code >= 40 && code <= 47) now.back = `b${code - 40}`;
    else if (code >= 100 && code <= 107) now.back = `b${code - 92}`;
    else if (code === 38 || code === 48) {
      const [colour, took] = extended(codes, at);
      if (colour !== null) now[code === 38 ? "front" : "back"] = `${code === 38 ? "f" : "b"}${colour}`;
      at += took - 1;
    }
  }
  return now;
}

/** Split a line into `[text, classes]`. Of text overwritten by carriage returns, the last counts. */
function coloured(text) {
  const over = text.includes("\r") ? text.split("\r").filter((part) => part.replace(ANSI, "").trim()) : [text];
  const parts = (over.length ? over[over.length - 1] : "").split(SGR); // text and codes alternate
  const pieces = [];
  let now = {};
  for (let at = 0; at < parts.length; at += 2) {
    const shown = visible(parts[at]);
    if (shown) pieces.push([shown, [now.front, now.back, now.bold, now.dim, now.underline].filter(Boolean).join(" ")]);
    if (at + 1 < parts.length) now = turn(now, parts[at + 1].replace(/:/g, ";").split(";").map(Number));
  }
  return pieces;
}
