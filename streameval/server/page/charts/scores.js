// The scores of versions by label in one chart: filled for clicks, a broken line for non-clicks. Bins of versions differ in
// width, so the height is a density: the share of the label per tenfold of pClick.

import { svg } from "../dom.js";
import { count, percentTick, significant } from "../format.js";
import { frame, linear, logarithmic } from "./frame.js";

const TAIL = 0.001; // of the scores of a layer
const LEAST = 1e-6; // pClick; a logarithmic axis has no zero
const NARROWEST = 0.05; // tenfolds; the bins next to 1 are far narrower, and what saturates there would tower over all the rest

// shown: [{ name, look, scores: { edges, impressions, clicks } }] with at least one bin each
export function scoreChart(shown) {
  const layers = shown.flatMap(({ name, look, scores: { edges, impressions, clicks } }) => [
    { kind: "clicks", name, look, edges, values: clicks },
    { kind: "non-clicks", name, look, edges, values: impressions.map((n, i) => n - clicks[i]) },
  ]);
  for (const layer of layers) {
    const total = layer.values.reduce((sum, n) => sum + n, 0) || 1;
    [layer.at, layer.values] = widened(layer.edges.map((edge) => Math.max(LEAST, edge)), layer.values);
    layer.density = layer.values.map((n, i) => n / total / (Math.log10(layer.at[i + 1] / layer.at[i]) || Infinity));
  }
  const low = Math.min(...layers.map(first));
  const high = Math.max(...layers.map(({ at }) => at.at(-1)));
  const most = Math.max(...layers.flatMap(({ density }) => density), 0.01);
  const { root, x, y } = frame({
    x: { scale: logarithmic(low, high), name: "pClick", format: percentTick },
    y: { scale: linear(0, most * 1.08), name: "density: share per tenfold of pClick", format: (v) => significant(v, 2) },
    title: "Scores by label",
    description: shown.map(({ name, scores: { clicks, impressions } }) => `${name}: ${count(clicks.reduce((a, b) => a + b, 0))} clicks of ${count(impressions.reduce((a, b) => a + b, 0))} impressions`).join("; "),
  });
  for (const { kind, name, look, at, density } of layers) {
    const px = (value) => x(Math.max(low, value)).toFixed(1);
    const steps = density.map((d, i) => (at[i + 1] <= low ? "" : `L${px(at[i])} ${y(d).toFixed(1)}H${px(at[i + 1])}`)).join("");
    const outline = `M${px(at[0])} ${y(0).toFixed(1)}${steps}V${y(0).toFixed(1)}`;
    root.append(svg("g", { class: look.class }, svg("path", { class: `step ${kind}`, d: outline }, svg("title", {}, `${name}, ${kind}`))));
  }
  return root;
}

// Where a layer begins, but for its least scores: a thousandth of them must not take half of the axis.
function first({ at, values }) {
  const total = values.reduce((sum, n) => sum + n, 0);
  let below = 0;
  const i = values.findIndex((n) => (below += n) > total * TAIL);
  return at[Math.max(0, i)];
}

// From the right, neighbours are put together until every bin but the first is as wide as `NARROWEST`.
function widened(edges, values) {
  const [at, sums] = [[edges.at(-1)], []];
  for (let i = values.length - 1; i >= 0; i -= 1) {
    if (sums.length === 0 || Math.log10(at[1] / at[0]) >= NARROWEST) {
      at.unshift(edges[i]);
      sums.unshift(0);
    }
    at[0] = edges[i];
    sums[0] += values[i];
  }
  return [at, sums];
}
