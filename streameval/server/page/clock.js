// The monitor's time: ages must be right on a computer whose clock is not.

const TOLERATED_MS = 2500; // a Date header has whole seconds, and takes a while to arrive
let ahead = 0; // of the monitor's clock, in ms

export const now = () => Date.now() + ahead;

// From the Date header of an answer that has just arrived.
export function setBy(date) {
  const off = Date.parse(date ?? "") - Date.now();
  if (!Number.isNaN(off)) ahead = Math.abs(off) > TOLERATED_MS ? off : 0;
}
