// What every version trades: click yield against mainline ads, a dot for every operating point.

import { svg } from "../dom.js";
import { number, significant } from "../format.js";
import { GROUPS_DF, halfWidth } from "../intervals.js";
import { frame, linear, path } from "./frame.js";

// curves: [{ name, look, rows }] of the API's rows; `measure`: the yield's name, `title`: in words
export function frontier(curves, measure, title) {
  const known = curves.map((one) => ({ ...one, rows: one.rows.filter((row) => row[measure] !== null && row.mainline_ads !== null) }));
  const all = known.flatMap(({ rows }) => rows);
  const scale = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = (high - low || Math.abs(high) || 1) * 0.12;
    return linear(Math.max(0, low - room), high + room);
  };
  const ends = (row) => [-1, 1].map((side) => row[measure] + side * halfWidth(GROUPS_DF) * (row[`${measure}_stderr`] ?? 0));
  const { root, x, y } = frame({
    x: { scale: scale(all.map((row) => row.mainline_ads)), name: "mainline ads per request", format: (v) => significant(v) },
    y: { scale: scale(all.flatMap(ends)), name: "clicks per request", format: (v) => significant(v) },
    title: `${title} against mainline ads`,
    description: `${title} against mainline ads by operating point, for ${known.map((one) => one.name).join(" and ")}; the numbers are in the table below`,
  });
  for (const { name, look, rows } of known) {
    const group = svg("g", { class: look.class });
    // yields are read off the line between operating points of one sidebar reserve
    for (const reserve of new Set(rows.map((row) => row.sidebar_reserve))) {
      const line = rows.filter((row) => row.sidebar_reserve === reserve).sort((a, b) => a.mainline_ads - b.mainline_ads);
      group.append(svg("path", { class: "line", d: path(line.map((row) => [x(row.mainline_ads), y(row[measure])])) }));
    }
    for (const row of rows) {
      const [low, high] = ends(row).map(y);
      const px = x(row.mainline_ads);
      group.append(
        svg("line", { class: "whisker", x1: px, x2: px, y1: low, y2: high }),
        svg("circle", { class: "dot", cx: px, cy: y(row[measure]), r: 4 }, svg("title", {}, `${name} at ${row.point}: ${number(row[measure])} clicks and ${number(row.mainline_ads, 2)} mainline ads per request`)),
      );
    }
    root.append(group);
  }
  return root;
}
