// A chart as a PNG, in the colours of now: what is drawn on canvases, and SVG with the style sheet's colours written into it.

import { colour } from "./colours.js";
import { dateTime, zone } from "./format.js";

const SCALE = 2; // of pixels, for print
const ROOM = 14;
const LEGEND = 39;
const HEAD = 52;
const FOOT = 26;
const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "vector-effect"];

// Everything drawn in `place`, under the title and the legend (data-legend: [[text, custom property], ...]). Raises an Error where there is nothing.
export async function picture(place, title) {
  const drawn = [...place.querySelectorAll("canvas, svg:not(.icon)")].filter((one) => one.getBoundingClientRect().width > 20);
  if (!drawn.length) throw new Error("nothing drawn yet");
  const boxes = drawn.map((one) => one.getBoundingClientRect());
  const left = Math.min(...boxes.map((box) => box.left));
  const top = Math.min(...boxes.map((box) => box.top));
  const width = Math.max(...boxes.map((box) => box.right)) - left;
  const height = Math.max(...boxes.map((box) => box.bottom)) - top;
  const canvas = document.createElement("canvas");
  canvas.width = (width + 2 * ROOM) * SCALE;
  canvas.height = (height + HEAD + FOOT) * SCALE;
  const ctx = canvas.getContext("2d");
  ctx.scale(SCALE, SCALE);
  ctx.fillStyle = colour("--panel");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colour("--ink");
  ctx.font = "600 14px system-ui, sans-serif";
  ctx.fillText(title, ROOM, 20, width);
  ctx.fillStyle = colour("--ink-quiet");
  ctx.font = "11px system-ui, sans-serif";
  ctx.fillText(`streameval, ${location.host}, ${dateTime(Date.now(), { seconds: true })} ${zone()}`, ROOM, height + HEAD + 17, width);
  let at = ROOM;
  for (const [text, variable] of JSON.parse(place.dataset.legend ?? "[]")) {
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
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("too large")))));
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
