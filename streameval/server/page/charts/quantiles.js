// A number per pClick quantile, versions side by side (as Yi et al. 2013, "Predictive model performance: offline and
// online evaluations", figures 3 and 4).

import { svg } from "../dom.js";
import { frame, linear, path, within } from "./frame.js";

// tables: [{ name, look, buckets }]; of(bucket) -> number or null; bounds(bucket) -> [low, high] or null
export function byQuantile(tables, { title, name, of, bounds, format, zero }) {
  const values = tables.flatMap(({ buckets }) => buckets.map(of)).filter((v) => v !== null && Number.isFinite(v));
  let low = Math.min(...values, zero ? 0 : Infinity);
  let high = Math.max(...values, zero ? 0 : -Infinity);
  if (!values.length) [low, high] = [0, 1];
  // bounds are within the chart, but for those that are far off
  const ends = bounds ? tables.flatMap(({ buckets }) => buckets.flatMap((b) => (of(b) === null ? [] : (bounds(b) ?? [])))) : [];
  const further = (high - low) * 0.4;
  low = Math.max(low - further, Math.min(low, ...ends));
  high = Math.min(high + further, Math.max(high, ...ends));
  const room = (high - low || 1) * 0.05;
  const scale = linear(low - room, high + room);
  const most = Math.max(...tables.map(({ buckets }) => buckets.length), 1);
  const { root, x, y } = frame({
    x: { scale: { ...linear(0, most), ticks: ticks(most) }, name: "quantile of pClick, %", format: (n) => String(Math.round((100 * n) / most)) },
    y: { scale, name, format },
    title,
    description: `${name} by quantile of pClick, for ${tables.map((t) => t.name).join(" and ")}; the numbers are in the table below`,
  });
  if (zero) root.append(svg("line", { class: "diagonal", x1: x(0), x2: x(most), y1: y(0), y2: y(0) }));
  tables.forEach(({ name: version, look, buckets }, number) => {
    const group = svg("g", { class: look.class });
    const shift = (number - (tables.length - 1) / 2) * 0.16; // whiskers of two versions must not cover each other
    const at = buckets.map((b, i) => [of(b) === null ? null : x(i + 0.5 + shift), of(b), b]).filter(([px]) => px !== null);
    group.append(svg("path", { class: "line", d: path(at.map(([px, v]) => [px, y(within(scale, v))])) }));
    for (const [px, value, b] of at) {
      const ends = bounds?.(b);
      if (ends) group.append(svg("line", { class: "whisker", x1: px, x2: px, y1: y(within(scale, ends[0])), y2: y(within(scale, ends[1])) }));
      group.append(svg("circle", { class: "dot", cx: px, cy: y(value), r: 3.4 }, svg("title", {}, `${version}: ${format(value)} at mean pClick ${b.mean_pclick.toPrecision(3)}`)));
    }
    root.append(group);
  });
  return root;
}

const ticks = (most) => [0, 0.2, 0.4, 0.6, 0.8, 1].map((part) => part * most);
