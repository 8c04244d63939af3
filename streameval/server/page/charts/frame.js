// Axes for charts in SVG: scales with ticks, a grid, names, and room for what is drawn on them.

import { svg } from "../dom.js";

const CHARACTER = 7; // px, the widest of a number below the axis
const WIDTH = { wide: 460, phone: 330 }; // a drawing is as wide as its place: what is shrunk has letters that nobody reads
const ROOM = { left: 70, right: 24, top: 12, bottom: 44 };

export function linear(low, high) {
  const span = high - low || 1;
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= 0.75 * rough); // three ticks at least
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * span; i += 1) ticks.push(i * step);
  return { low, high, ticks, part: (value) => (value - low) / span };
}

export function logarithmic(low, high) {
  const [from, to] = [Math.log10(low), Math.log10(high)];
  const ticks = [];
  for (let power = Math.floor(from); power <= Math.ceil(to); power += 1) {
    for (const n of to - from < 2.5 ? [1, 2, 5] : [1]) {
      const value = n * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return { low, high, ticks, part: (value) => (Math.log10(value) - from) / (to - from || 1) };
}

export const within = (scale, value) => Math.min(scale.high, Math.max(scale.low, value));

// A chart of `width` x `height` with axes x and y ({scale, name, format}): { root, x, y } where x and y give pixels.
export function frame({ width = innerWidth < 500 ? WIDTH.phone : WIDTH.wide, height = 340, x, y, title, description }) {
  const id = `chart-${title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}`;
  const root = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": `${id}-title ${id}-about` });
  root.append(svg("title", { id: `${id}-title` }, title), svg("desc", { id: `${id}-about` }, description));
  const px = (value) => ROOM.left + x.scale.part(value) * (width - ROOM.left - ROOM.right);
  const py = (value) => height - ROOM.bottom - y.scale.part(value) * (height - ROOM.top - ROOM.bottom);
  const axes = svg("g", { class: "axes", "aria-hidden": "true" });
  let free = -Infinity; // from here on no number stands below the axis yet
  for (const tick of x.scale.ticks) {
    axes.append(svg("line", { x1: px(tick), x2: px(tick), y1: ROOM.top, y2: height - ROOM.bottom }));
    const text = x.format(tick);
    const half = (String(text).length * CHARACTER) / 2;
    if (px(tick) - half < free) continue;
    free = px(tick) + half + CHARACTER;
    axes.append(svg("text", { x: px(tick), y: height - ROOM.bottom + 17, "text-anchor": "middle" }, text));
  }
  for (const tick of y.scale.ticks) {
    axes.append(
      svg("line", { x1: ROOM.left, x2: width - ROOM.right, y1: py(tick), y2: py(tick) }),
      svg("text", { x: ROOM.left - 7, y: py(tick) + 4, "text-anchor": "end" }, y.format(tick)),
    );
  }
  axes.append(
    svg("text", { class: "name", x: (ROOM.left + width - ROOM.right) / 2, y: height - 6, "text-anchor": "middle" }, x.name),
    svg("text", { class: "name", transform: `translate(14 ${(ROOM.top + height - ROOM.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.name),
  );
  root.append(axes);
  return { root, x: px, y: py };
}

export const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
