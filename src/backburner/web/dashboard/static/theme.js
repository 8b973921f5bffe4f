// Light, dark or system theme, stored in the browser. Runs before the first rendering.

const THEMES = { auto: ["◐", "as the system has them"], light: ["☀", "light"], dark: ["☾", "dark"] };

function useTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

const keptTheme = () => {
  try {
    const kept = localStorage.getItem("backburner-theme");
    return Object.hasOwn(THEMES, kept) ? kept : "auto";
  } catch {
    return "auto";
  }
};

useTheme(keptTheme());

document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const show = (name) => {
    button.textContent = THEMES[name][0];
    button.setAttribute("aria-label", `Colours: ${THEMES[name][1]}`);
  };
  show(keptTheme());
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(keptTheme()) + 1) % names.length];
    try {
      localStorage.setItem("backburner-theme", next);
    } catch { /* not stored: applies to this page only */ }
    useTheme(next);
    show(next);
  });
});
