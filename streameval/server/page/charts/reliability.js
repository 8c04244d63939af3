// Predicted against observed by pClick quantile, on log axes: on the diagonal scores are calibrated.

import { svg } from "../dom.js";
import { count, percentTick, significant } from "../format.js";
import { frame, logarithmic, path, within } from "./frame.js";

// Wilson's interval (1927) of a proportion, 95%.
export function wilson(clicks, impressions, z = 1.96) {
  const p = clicks / impressions;
  const n = impressions;
  const middle = (p + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = ((z / (1 + (z * z) / n)) * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n)));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

// tables: [{ name, look, buckets }]
export function reliability(tables) {
  const points = tables.flatMap(({ buckets }) => buckets.filter((b) => b.impressions > 0));
  const seen = points.flatMap((b) => [b.mean_pclick, b.ctr]).filter((v) => v > 0);
  const low = 10 ** Math.floor(Math.log10(Math.min(...seen, 0.1)));
  const high = Math.min(1, Math.max(...seen, low * 10) * 1.5);
  const scale = logarithmic(low, high);
  const form = percentTick;
  const { root, x, y } = frame({
    x: { scale, name: "mean pClick", format: form },
    y: { scale, name: "CTR", format: form },
    title: "Reliability",
    description: `CTR against mean pClick by quantile of pClick, for ${tables.map((t) => t.name).join(" and ")}; the numbers are in the table below`,
  });
  root.append(svg("line", { class: "diagonal", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }));
  for (const { name, look, buckets } of tables) {
    const group = svg("g", { class: look.class });
    const known = buckets.filter((b) => b.impressions > 0);
    const at = known.map((b) => [x(within(scale, b.mean_pclick)), y(within(scale, b.ctr)), b]);
    group.append(svg("path", { class: "line", d: path(at) }));
    for (const [px, py, b] of at) {
      const [least, most] = wilson(b.clicks, b.impressions).map((v) => y(within(scale, v)));
      group.append(
        svg("line", { class: "whisker", x1: px, x2: px, y1: least, y2: most }),
        svg("circle", { class: "dot", cx: px, cy: py, r: 3.6 },
          svg("title", {}, `${name}: pClick ${significant(b.lower)} to ${significant(b.upper)}, mean ${significant(b.mean_pclick)}, CTR ${significant(b.ctr)} (${count(b.clicks)} of ${count(b.impressions)})`)),
      );
    }
    root.append(group);
  }
  return root;
}
