// A line of a cell's size: the last panes of a metric, with the ends of its error bars as a pale band.

import { svg } from "../dom.js";
import { interval } from "../intervals.js";

const WIDTH = 96;
const HEIGHT = 26;
const WIDEST = 0.05; // of the error bars, for which there is no room

const half = ({ value, stderr, stderr_df: df }, i) => interval(value[i], stderr[i], df[i])?.half ?? 0;

// What lines that stand below each other are drawn on: { from, to } in unix seconds, { low, high }. The scale has room for the
// values and their error bars, but for the widest: one pane with few clicks must not flatten the rest.
export function sharedScale(lines) {
  const values = lines.flatMap(({ value }) => value.filter((v) => v !== null)).sort((a, b) => a - b);
  const ends = (side) => lines.flatMap((line) => line.value.flatMap((v, i) => (v === null ? [] : v + side * half(line, i)))).sort((a, b) => side * (a - b));
  const times = lines.flatMap(({ start }) => [start[0], start.at(-1)]).filter((t) => t !== undefined);
  if (!values.length) return null;
  const cut = Math.floor(values.length / 50);
  const widest = Math.min(values.length - 1, Math.floor((values.length - 1) * (1 - WIDEST)));
  const low = Math.min(values[cut], ends(-1)[widest]);
  const high = Math.max(values[values.length - 1 - cut], ends(1)[widest]);
  const room = (high - low || Math.abs(high) * 0.01 || 0.01) * 0.08;
  return { from: Math.min(...times), to: Math.max(...times), low: low - room, high: high + room };
}

// `marks`: unix seconds of deploys.
export function sparkline(line, { about, scale, marks = [] }) {
  const { start, value } = line;
  const defined = value.map((v, i) => (v === null ? null : i)).filter((i) => i !== null);
  const root = svg("svg", { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": about, preserveAspectRatio: "none" });
  if (defined.length < 2 || !scale) return root;
  const across = (time) => (1 + ((WIDTH - 5) * (time - scale.from)) / (scale.to - scale.from || 1)).toFixed(1);
  const x = (i) => across(start[i]);
  const y = (v) => Math.min(HEIGHT, Math.max(0, HEIGHT - (HEIGHT * (v - scale.low)) / (scale.high - scale.low)));
  const points = (of) => defined.map((i) => `${x(i)},${y(of(i)).toFixed(1)}`);
  const band = [...points((i) => value[i] + half(line, i)), ...points((i) => value[i] - half(line, i)).reverse()];
  const last = defined.at(-1);
  root.append(
    svg("polygon", { class: "band", points: band.join(" ") }),
    ...marks.filter((at) => at > scale.from && at <= scale.to).map((at) => svg("line", { class: "deployed", x1: across(at), x2: across(at), y1: 0, y2: HEIGHT })),
    svg("polyline", { class: "line", points: points((i) => value[i]).join(" ") }),
    // a line of no length has round ends: a dot that stays round when the picture is stretched
    svg("path", { class: "end", d: `M${x(last)} ${y(value[last]).toFixed(1)}h0.01` }),
  );
  return root;
}
