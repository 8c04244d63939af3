// The style sheet's colours, for canvases.

const known = new Map();
window.addEventListener("themechange", () => known.clear());

export function dark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// "rgb(..)" of a custom property, as the present theme has it.
export function colour(variable) {
  if (!known.has(variable)) {
    const probe = document.createElement("i");
    probe.style.color = `var(${variable})`;
    document.body.append(probe);
    known.set(variable, getComputedStyle(probe).color);
    probe.remove();
  }
  return known.get(variable);
}

export const fade = (rgb, alpha) => rgb.replace(/^rgba?\(([^,]+),([^,]+),([^,)]+).*$/, `rgba($1,$2,$3,${alpha})`);
