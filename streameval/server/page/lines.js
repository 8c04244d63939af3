// A series over its panes as a line of a chart: values with the ends of their 95% intervals, each in the middle of its pane.

import { interval } from "./intervals.js";
import { within } from "./metrics.js";
import { shorten } from "./names.js";
import { key, look } from "./series.js";

export function lineOf(overview, one, range) {
  const { start, seconds, value, stderr, stderr_df: df } = one.columns;
  const ends = value.map((v, i) => interval(v, stderr[i], df[i]));
  return {
    name: shorten(one.version),
    look: look(overview, one),
    x: start.map((at, i) => at + seconds[i] / 2),
    y: value,
    low: ends.map((e) => within(range, e?.low ?? null)),
    high: ends.map((e) => within(range, e?.high ?? null)),
    id: key(one),
  };
}
