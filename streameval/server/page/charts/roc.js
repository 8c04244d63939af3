// The ROC curve; thick for the quarter of the impressions with the highest scores, which is where ranking happens. The
// operating range, of which the partial AUC is, is shaded.

import { svg } from "../dom.js";
import { frame, linear, path } from "./frame.js";
import { significant } from "../format.js";

const MARKS = [0.01, 0.05, 0.1, 0.25];

const value = (auc) => (auc === null ? "undefined" : auc.toFixed(4));

// curves: [{ name, look, points, auc, pauc }], range: two false positive rates
export function roc(curves, range) {
  const scale = { ...linear(0, 1), ticks: [0, 0.2, 0.4, 0.6, 0.8, 1] };
  const form = (v) => v.toFixed(1);
  const { root, x, y } = frame({
    x: { scale, name: "share of non-clicks above the threshold", format: form },
    y: { scale, name: "share of clicks above it", format: form },
    title: "ROC",
    description: curves.map(({ name, auc, pauc }) => `${name}: AUC ${value(auc)}, partial AUC ${value(pauc)}`).join("; "),
  });
  const [left, right] = range.map(x);
  const about = `operating range: false positive rates ${range[0]} to ${range[1]}`;
  root.append(svg("rect", { class: "range", x: left, y: y(1), width: Math.max(right - left, 1), height: y(0) - y(1) }, svg("title", {}, about)));
  root.append(svg("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  for (const { name, look, points } of curves) {
    const group = svg("g", { class: look.class });
    const last = points.at(-1);
    const all = last ? last.clicks + last.non_clicks : 0;
    const place = (p) => [x(p.fpr ?? 0), y(p.tpr ?? 0)];
    group.append(svg("path", { class: "line thin", d: path(points.map(place)) }));
    const top = points.filter((p) => p.clicks + p.non_clicks <= all * MARKS.at(-1));
    group.append(svg("path", { class: "line thick", d: path(top.map(place)) }));
    for (const mark of MARKS) {
      const point = points.find((p) => p.clicks + p.non_clicks >= all * mark);
      if (!point) continue;
      const [px, py] = place(point);
      const text = `${name}: top ${mark * 100}% of impressions, threshold ${significant(point.threshold)}`;
      group.append(svg("circle", { class: "dot", cx: px, cy: py, r: 3.4 }, svg("title", {}, text)));
    }
    root.append(group);
  }
  return root;
}
