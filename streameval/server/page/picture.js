// A chart as a PNG, in the colours of now: what is drawn on canvases, and SVG with the style sheet's colours written into it.

import { colour } from "./colours.js";
import { dateTime, zone } from "./format.js";

const SCALE = 2; // of pixels, for print
const ROOM = 14;
const LEGEND = 39;
const HEAD = 52;
const FOOT = 26;
const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "vector-effect"];
const LINE = { width: 420, height: 34, drawn: 26, gap: 16 }; // of a table's lines

// Everything drawn in `place`, under the title and the legend (data-legend: [[text, custom property], ...]). Raises an Error where there is
// nothing. Of a table whose lines are drawings (data-line: [text before, quiet below it, text behind]), the lines with their texts.
export async function picture(place, title) {
  const lines = [...place.querySelectorAll("svg[data-line]")];
  const drawn = lines.length ? [] : [...place.querySelectorAll("canvas, svg:not(.icon)")].filter((one) => one.getBoundingClientRect().width > 20);
  if (!drawn.length && !lines.length) throw new Error("nothing drawn yet");
  const canvas = lines.length ? await ofLines(lines, title) : await ofCharts(drawn, title, JSON.parse(place.dataset.legend ?? "[]"));
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("too large")))));
}

async function ofCharts(drawn, title, legend) {
  const boxes = drawn.map((one) => one.getBoundingClientRect());
  const left = Math.min(...boxes.map((box) => box.left));
  const top = Math.min(...boxes.map((box) => box.top));
  const width = Math.max(...boxes.map((box) => box.right)) - left;
  const height = Math.max(...boxes.map((box) => box.bottom)) - top;
  const ctx = framed(width, height, title);
  let at = ROOM;
  for (const [text, variable] of legend) {
    ctx.fillStyle = colour(variable);
    ctx.fillRect(at, LEGEND - 9, 10, 10);
    ctx.fillStyle = colour("--ink");
    ctx.fillText(text, at + 15, LEGEND);
    at += ctx.measureText(text).width + 35;
  }
  for (const [i, one] of drawn.entries()) {
    const image = one instanceof HTMLCanvasElement ? one : await imageOf(one, boxes[i]);
    ctx.drawImage(image, ROOM + boxes[i].left - left, HEAD + boxes[i].top - top, boxes[i].width, boxes[i].height);
  }
  return ctx.canvas;
}

// Of one size, whatever that of the screen; what is to the left and right of zero above them (data-ends, data-zero: of the width).
async function ofLines(lines, title) {
  const texts = lines.map((one) => JSON.parse(one.dataset.line));
  const measure = document.createElement("canvas").getContext("2d");
  const widest = (font, some) => Math.max(...some.map((text) => (measure.font = font) && measure.measureText(text).width));
  const before = Math.max(widest(letters(13, 600), texts.map(([name]) => name)), widest(letters(11), texts.map(([, below]) => below))) + LINE.gap;
  const behind = widest(letters(13), texts.map(([, , text]) => text)) + LINE.gap;
  const ctx = framed(before + LINE.width + behind, lines.length * LINE.height, title);
  const from = ROOM + before;
  const [better, zero, worse] = JSON.parse(lines[0].dataset.ends);
  ctx.fillText(better, from, LEGEND);
  ctx.fillText("0", from + zero * LINE.width - 3, LEGEND);
  ctx.fillText(worse, from + LINE.width - ctx.measureText(worse).width, LEGEND);
  const write = (text, font, ink, x, y) => {
    ctx.font = font;
    ctx.fillStyle = colour(ink);
    ctx.fillText(text, x, y);
  };
  for (const [i, one] of lines.entries()) {
    const top = HEAD + i * LINE.height;
    const [name, below, text] = texts[i];
    if (one.childElementCount) ctx.drawImage(await imageOf(one, { width: LINE.width, height: LINE.drawn }), from, top, LINE.width, LINE.drawn);
    write(name, letters(13, 600), "--ink", ROOM, top + 12);
    write(below, letters(11), "--ink-quiet", ROOM, top + 26);
    write(text, letters(13), "--ink", from + LINE.width + LINE.gap, top + 18);
  }
  return ctx.canvas;
}

const letters = (size, weight = 400) => `${weight} ${size}px system-ui, sans-serif`;

// A canvas with a title above and where it is from below; what is drawn next is small and quiet.
function framed(width, height, title) {
  const canvas = document.createElement("canvas");
  canvas.width = (width + 2 * ROOM) * SCALE;
  canvas.height = (height + HEAD + FOOT) * SCALE;
  const ctx = canvas.getContext("2d");
  ctx.scale(SCALE, SCALE);
  ctx.fillStyle = colour("--panel");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colour("--ink");
  ctx.font = letters(14, 600);
  ctx.fillText(title, ROOM, 20, width);
  ctx.fillStyle = colour("--ink-quiet");
  ctx.font = letters(11);
  ctx.fillText(`streameval, ${location.host}, ${dateTime(Date.now(), { seconds: true })} ${zone()}`, ROOM, height + HEAD + 17, width);
  return ctx;
}

async function imageOf(svg, { width, height }) {
  const copy = svg.cloneNode(true);
  const to = [copy, ...copy.querySelectorAll("*")];
  [svg, ...svg.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of STYLED) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", width * SCALE);
  copy.setAttribute("height", height * SCALE);
  if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    return image;
  } finally {
    URL.revokeObjectURL(address);
  }
}
