// A line of a cell's size: the last panes of a metric, with the ends of its error bars as a pale band.

import { svg } from "../dom.js";
import { interval } from "../intervals.js";

const WIDTH = 96;
const HEIGHT = 26;

export function sparkline({ value, stderr, stderr_df: df }, { about }) {
  const defined = value.map((v, i) => (v === null ? null : i)).filter((i) => i !== null);
  const root = svg("svg", { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": about, preserveAspectRatio: "none" });
  if (defined.length < 2) return root;
  const half = (i) => interval(value[i], stderr[i], df[i])?.half ?? 0;
  // the scale is that of the values: one pane with few clicks must not flatten the rest
  const low = Math.min(...defined.map((i) => value[i]));
  const high = Math.max(...defined.map((i) => value[i]));
  const room = (high - low || Math.abs(high) * 0.01 || 0.01) * 0.35;
  const x = (i) => 1 + ((WIDTH - 5) * (i - defined[0])) / (value.length - 1 - defined[0] || 1);
  const y = (v) => Math.min(HEIGHT, Math.max(0, HEIGHT - (HEIGHT * (v - low + room)) / (high - low + 2 * room)));
  const points = (of) => defined.map((i) => `${x(i).toFixed(1)},${y(of(i)).toFixed(1)}`);
  const band = [...points((i) => value[i] + half(i)), ...points((i) => value[i] - half(i)).reverse()];
  const last = defined.at(-1);
  root.append(
    svg("polygon", { class: "band", points: band.join(" ") }),
    svg("polyline", { class: "line", points: points((i) => value[i]).join(" ") }),
    // a line of no length has round ends: a dot that stays round when the picture is stretched
    svg("path", { class: "end", d: `M${x(last).toFixed(1)} ${y(value[last]).toFixed(1)}h0.01` }),
  );
  return root;
}
