// Bars over bins, in one or two layers (all, and of these the clicks, scaled to their own total).

import { svg } from "../dom.js";
import { frame, linear, logarithmic } from "./frame.js";

// layers: [{ class, name, values }], each drawn as its share; edges: one more than values. `range`: [from, to] of the first
// axis, and `most`, the greatest share, for charts that are to be compared.
export function histogram({ title, edges, layers, xName, xFormat, log = false, describe, range = [edges[0], edges.at(-1)], most = 0, width = 460, yName = "share" }) {
  const shares = layers.map(({ values }) => {
    const total = values.reduce((sum, n) => sum + n, 0) || 1;
    return values.map((n) => n / total);
  });
  const high = Math.max(...shares.flat(), most, 0.01);
  const first = log ? Math.max(range[0], 1e-6) : range[0];
  const scale = log ? logarithmic(first, range[1]) : linear(first, range[1]);
  const { root, x, y } = frame({
    width,
    height: Math.min(280, width * 0.85),
    x: { scale, name: xName, format: xFormat },
    y: { scale: linear(0, high * 1.08), name: yName, format: (v) => `${Math.round(v * 1000) / 10}%` },
    title,
    description: describe,
  });
  layers.forEach(({ class: name, name: text }, number) => {
    const group = svg("g", { class: `bars ${name}` });
    shares[number].forEach((share, i) => {
      if (!share) return;
      const [left, right] = [x(Math.max(first, edges[i])), x(Math.max(first, edges[i + 1]))];
      group.append(svg("rect", { x: left.toFixed(2), width: Math.max(0.6, right - left - 0.6).toFixed(2), y: y(share).toFixed(2), height: Math.max(0, y(0) - y(share)).toFixed(2) },
        svg("title", {}, `${text}: ${xFormat(edges[i])} to ${xFormat(edges[i + 1])}: ${(share * 100).toPrecision(3)}%`)));
    });
    root.append(group);
  });
  return root;
}
