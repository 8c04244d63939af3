// While a button of the mouse, a finger or the space bar is down, nothing is drawn anew: what was pressed would be gone when it is released, and no click would come of it.

const LONGEST_MS = 3000; // of a press whose end is never told, as when a menu of the system comes up

let ends = null; // set while something is pressed
const waiting = new Map(); // element -> what draws it

// Whether something is pressed: then `draw` is called when it is released, unless there is something newer for the element.
export function held(element, draw) {
  if (ends === null) return false;
  waiting.set(element, draw);
  return true;
}

function press() {
  clearTimeout(ends);
  ends = setTimeout(release, LONGEST_MS);
}

function release() {
  clearTimeout(ends);
  ends = null;
  const all = [...waiting.values()];
  waiting.clear();
  for (const draw of all) draw();
}

const clicked = () => ends !== null && setTimeout(release); // the click comes after the event that ends the press

addEventListener("pointerdown", press, true);
for (const name of ["pointerup", "pointercancel", "dragend", "blur"]) addEventListener(name, clicked, true);
addEventListener("keydown", (event) => event.key === " " && !event.repeat && press(), true);
addEventListener("keyup", (event) => event.key === " " && clicked(), true);
