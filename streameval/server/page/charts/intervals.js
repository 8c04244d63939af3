// Differences as intervals, one line per metric. Zero stands in one place for all, to the right is worse; beyond the margin is
// shaded. Each line has its own scale, because the metrics have: the numbers stand beside it.

import { h, svg } from "../dom.js";

const WIDTH = 320;
const HEIGHT = 30;
const ZERO = 0.36; // of the width
const ROOM = 0.92; // of either side, for what is drawn

const ENDS = ["← better", "worse →"];

// `worse`: 1 when a positive difference is worse, else -1; `about`: the same in words; `line`: what stands beside it in a picture.
export function intervalLine({ difference, lower, upper, margin, tolerance, verdict }, { worse, about, calm, line }) {
  const root = svg("svg", { "data-line": JSON.stringify(line), "data-ends": JSON.stringify([ENDS[0], ZERO, ENDS[1]]), class: "interval-line", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": about, "data-verdict": verdict, "data-calm": calm });
  if (difference === null) return root;
  // a bound that is not known, or says nothing, is an arrow
  const ends = [lower, upper].map((v) => (v === null || Math.abs(v) > 10 ? null : worse * v));
  if (worse < 0) ends.reverse();
  const [least, most] = ends;
  const value = worse * difference;
  const right = Math.max(1.6 * margin, most ?? 0, value, 1e-12);
  const left = Math.max(1.2 * margin, -(least ?? 0), -value, tolerance ?? 0, 1e-12);
  const unit = Math.min(((1 - ZERO) * ROOM) / right, (ZERO * ROOM) / left) * WIDTH; // pixels of a difference of 1
  const x = (v) => ZERO * WIDTH + v * unit;
  const upright = (name, v) => svg("line", { class: name, x1: x(v), x2: x(v), y1: 0, y2: HEIGHT });
  const middle = HEIGHT / 2;
  const [from, to] = [least === null ? 1 : x(least), most === null ? WIDTH - 1 : x(most)];
  root.append(
    svg("rect", { class: "beyond", x: x(margin), y: 0, width: WIDTH - x(margin), height: HEIGHT }),
    ...(tolerance ? [upright("tolerance", tolerance)] : []),
    upright("zero", 0),
    upright("margin", margin),
    svg("line", { class: "bar", x1: from.toFixed(1), x2: Math.max(to, from + 1).toFixed(1), y1: middle, y2: middle }),
    ...[[least, 1, 1], [most, WIDTH - 1, -1]].filter(([end]) => end === null).map(([, at, way]) => svg("path", { class: "further", d: `M${at + way * 7} ${middle - 6}L${at} ${middle}L${at + way * 7} ${middle + 6}` })),
    svg("path", { class: "point", d: `M${x(value).toFixed(1)} ${middle}h0.01` }),
  );
  return root;
}

// What the lines say, above them.
export const intervalHead = () => h("span", { class: "interval-head" }, h("span", {}, ENDS[0]), h("span", {}, "0"), h("span", {}, ENDS[1]));
