// Lines over time with error bands: versions side by side, deploys as markers, what is not final yet as such.

import { colour, fade } from "../colours.js";
import { clock, DASH, dateTime, day, hour, inUtc } from "../format.js";
import { load } from "./uplot.js";

// A chart in `place`. `draw(content)` shows
//   lines: [{ name, look, x (unix seconds), y, low, high }], null where undefined
//   markers: [{ at, text }], from: unix seconds from which labels are not final (or null)
//   levels: [{ value, text }], horizontal; range: [from, to] of the time axis; zoomed(from, to): a range was dragged
//   limits: [least, most] that a value can have, null: none; the axis does not go beyond
//   format(value): as text; tick(value, digits): the same for the axis
// `height`: in pixels of a desk's screen; `screen`: it takes as much of a taller one
export function timeline(place, { height: least = 320, screen = 0 } = {}) {
  const height = Math.round(Math.max(least * scale(), screen * innerHeight));
  let plot = null;
  let shape = null; // what the plot was built for; other data only replaces data
  let content = null;
  let closed = false;

  const size = new ResizeObserver(() => plot?.setSize({ width: inside(place), height }));
  size.observe(place);
  const repaint = () => {
    shape = null;
    if (content) draw(content);
  };
  window.addEventListener("themechange", repaint);

  async function draw(next) {
    content = next;
    place.dataset.legend = JSON.stringify(next.lines.map((line) => [line.name, line.look.variable]));
    const uPlot = await load();
    if (closed || content !== next) return;
    const data = aligned(next.lines);
    const wanted = JSON.stringify([next.lines.map((l) => [l.name, l.look.index, l.low !== undefined]), next.range ?? null]);
    if (wanted === shape) {
      plot.setData(data);
      return;
    }
    shape = wanted;
    plot?.destroy();
    plot = new uPlot(options(uPlot, place, height, () => content), data, place);
  }

  return {
    draw,
    close() {
      closed = true;
      size.disconnect();
      window.removeEventListener("themechange", repaint);
      plot?.destroy();
    },
  };
}

// How much larger letters are here than on a desk: the style sheet decides.
const scale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

// One time axis for all lines, as uPlot wants it: [x, y, low, high, y, low, high, ...].
export function aligned(lines) {
  const x = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const at = new Map(x.map((time, i) => [time, i]));
  const columns = [x];
  for (const line of lines) {
    for (const values of [line.y, ...(line.low ? [line.low, line.high] : [])]) {
      const column = new Array(x.length).fill(null);
      line.x.forEach((time, i) => (column[at.get(time)] = values[i]));
      columns.push(column);
    }
  }
  return columns;
}

// What is drawn beyond it would be cut off.
function inside(place) {
  const { paddingLeft, paddingRight } = getComputedStyle(place);
  return place.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
}

function options(uPlot, place, height, content) {
  const now = content();
  const ink = colour("--ink-quiet");
  const grid = { stroke: colour("--line-pale"), width: 1 };
  const large = scale();
  const font = `${12 * large}px system-ui, sans-serif`;
  const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font };
  const series = [{ label: "Time", value: (_, v) => (v === null ? "" : dateTime(v * 1000, { seconds: true })) }];
  const bands = [];
  for (const line of now.lines) {
    const stroke = colour(line.look.variable);
    series.push({ label: line.name, stroke, width: 2, dash: line.look.dash, points: { size: 5, fill: stroke }, value: (_, v) => (v === null ? DASH : now.format(v)) });
    if (line.low) {
      const hidden = { show: true, stroke: "transparent", width: 0, points: { show: false }, auto: true };
      series.push({ ...hidden, label: "", class: "bound" }, { ...hidden, label: "", class: "bound" });
      bands.push({ series: [series.length - 1, series.length - 2], fill: fade(stroke, 0.16) });
    }
  }
  return {
    width: inside(place) || 600,
    height,
    ...(inUtc() ? { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
    series,
    bands,
    padding: [null, 28 * large, null, null], // half of the last time below the axis
    scales: { x: { time: true, range: now.range ? () => content().range : undefined }, y: { range: (_, low, high) => fit(content(), low, high) } },
    axes: [
      { ...axis, size: 50 * large, space: (_, __, from, to, width) => (width < 400 ? narrow(width, to - from) : 80 * large), values: times },
      { ...axis, size: 72 * large, space: 36 * large, values: (_, ticks, __, ___, apart) => ticks.map((v) => now.tick?.(v, decimals(apart)) ?? now.format(v)) },
    ],
    legend: { live: true, markers: { width: 3, dash: (u, i) => (u.series[i].dash?.length ? "dashed" : "solid") } },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
    hooks: {
      drawClear: [(u) => shadeUnfinal(u, content())],
      draw: [(u) => drawLevels(u, content()), (u) => drawMarkers(u, content()), (u) => (place.dataset.axis = `${u.scales.y.min} ${u.scales.y.max}`)],
      setSelect: [
        (u) => {
          if (u.select.width < 4) return;
          const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          content().zoomed?.(from, to);
        },
      ],
    },
  };
}

// Between two times on a phone, which shows more than one, too: minutes need less room than seconds.
const narrow = (width, seconds) => ((width * 30) / seconds >= 48 ? 66 : 48);

// As many as tell two ticks apart.
function decimals(apart) {
  const [, after = ""] = String(Number(apart.toPrecision(2))).split(".");
  return after.length;
}

// Hours (and seconds when they are that close), and the day below where it is another one.
function times(_, ticks, __, ___, apart) {
  let before = null;
  return ticks.map((tick) => {
    const date = day(tick * 1000);
    const changed = date !== before;
    before = date;
    if (apart >= 86400) return date;
    const time = apart < 60 ? clock(tick * 1000) : hour(tick * 1000);
    return changed ? `${time}\n${date}` : time;
  });
}

// The scale is that of the values and, as far as they are not far off, of their bounds: one minute with three clicks must
// not flatten a day.
function fit({ lines, levels = [], limits = [null, null] }) {
  const values = lines.flatMap((line) => line.y).filter((v) => v !== null && Number.isFinite(v));
  if (!values.length) return [0, 1];
  const most = usual(values);
  let low = Math.min(...levels.map((l) => l.value), most[0]);
  let high = Math.max(...levels.map((l) => l.value), most[1]);
  const room = (high - low || Math.abs(high) * 0.05 || 0.05) * 0.12;
  const bounds = lines.flatMap((line) => [...(line.low ?? []), ...(line.high ?? [])]).filter((v) => v !== null && Number.isFinite(v));
  if (bounds.length) {
    const further = (high - low || room) * 0.6;
    const [least, greatest] = range(bounds);
    low = Math.max(low - further, Math.min(low, least));
    high = Math.min(high + further, Math.max(high, greatest));
  }
  return [Math.max(low - room, limits[0] ?? -Infinity), Math.min(high + room, limits[1] ?? Infinity)];
}

// The range of all but the outermost hundredth on either side: the last pane before a restart may hold three clicks.
function usual(values) {
  const sorted = Float64Array.from(values).sort();
  const cut = Math.floor(sorted.length / 100);
  return [sorted[cut], sorted[sorted.length - 1 - cut]];
}

function range(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function shadeUnfinal(u, { from }) {
  if (from === null || from === undefined) return;
  const { left, top, width, height } = u.bbox;
  const start = Math.max(left, u.valToPos(from, "x", true));
  if (start >= left + width) return;
  const { ctx } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(start, top, left + width - start, height);
  ctx.clip();
  ctx.strokeStyle = fade(colour("--ink-quiet"), 0.28);
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([]); // uPlot leaves that of its last line
  const step = 9 * devicePixelRatio;
  ctx.beginPath();
  for (let x = start - height; x < left + width; x += step) {
    ctx.moveTo(x, top + height);
    ctx.lineTo(x + height, top);
  }
  ctx.stroke();
  ctx.restore();
}

function drawLevels(u, { levels = [] }) {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  let free = Infinity; // from below; a text that would lie on another is left out, the caption says what the lines are
  const at = levels.map((level) => ({ ...level, y: u.valToPos(level.value, "y", true) })).sort((a, b) => b.y - a.y);
  for (const { y, text } of at) {
    if (y < top || y > top + height) continue;
    stroke(ctx, [left, y, left + width, y], [3, 3]);
    if (!text || y > free) continue;
    write(ctx, { x: left + width - 6 * devicePixelRatio, y: y - 4 * devicePixelRatio, text, align: "right" });
    free = y - 14 * devicePixelRatio;
  }
}

function drawMarkers(u, { markers = [] }) {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  // from the newest: a text that would lie on another line stays in the list below the chart
  let free = Infinity;
  for (const { at, text } of [...markers].sort((a, b) => b.at - a.at)) {
    const x = u.valToPos(at, "x", true);
    if (x < left || x > left + width) continue;
    stroke(ctx, [x, top, x, top + height], [5, 4]);
    const from = x + 4 * devicePixelRatio;
    if (from + wide(ctx, text) + 4 * devicePixelRatio <= free) write(ctx, { x: from, y: top + 12 * devicePixelRatio, text, align: "left" });
    free = x;
  }
}

function stroke(ctx, [x0, y0, x1, y1], dash) {
  ctx.save();
  ctx.strokeStyle = colour("--ink-quiet");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash.map((n) => n * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
  ctx.restore();
}

const font = () => `${11 * scale() * devicePixelRatio}px system-ui, sans-serif`;

function write(ctx, { x, y, text, align }) {
  ctx.save();
  ctx.font = font();
  ctx.textAlign = align;
  ctx.textBaseline = "alphabetic"; // uPlot leaves another one: the text would lie on its line
  ctx.fillStyle = colour("--ink-quiet");
  ctx.fillText(text, x, y);
  ctx.restore();
}

function wide(ctx, text) {
  ctx.save();
  ctx.font = font();
  const { width } = ctx.measureText(text);
  ctx.restore();
  return width;
}
