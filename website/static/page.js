// The course's figures follow JupyterLab's mark of a dark theme; the theme of these pages has another.
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function markTheme() {
  const { theme } = document.body.dataset;
  const isDark = theme === "dark" || (theme !== "light" && systemIsDark.matches);
  document.body.dataset.jpThemeLight = String(!isDark);
}

// What is wider than the page scrolls in its box: by the keyboard, too.
function letKeysScroll() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .cell_output .output, .fourranks-figure")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("DOMContentLoaded", () => {
  markTheme();
  systemIsDark.addEventListener("change", markTheme);
  new MutationObserver(markTheme).observe(document.body, { attributeFilter: ["data-theme"] });
  letKeysScroll();
  addEventListener("resize", letKeysScroll);
  document.addEventListener("toggle", letKeysScroll, { capture: true });
  // MyST-NB labels each fold alike; its own text says more.
  document.querySelectorAll(".cell summary[aria-label]").forEach((fold) => fold.removeAttribute("aria-label"));
});
