// By whose labels metrics are counted: clicks, or those of an objective (clicks that are worth enough).

import { select } from "./controls.js";

// What the address asks for, if the monitor has it; null: by clicks.
export const objective = (overview, given) => (overview.objectives.includes(given.objective) ? given.objective : null);

// A control, where there is a choice.
export function objectiveControl(overview, given, change) {
  if (!overview.objectives.length) return null;
  const options = [["clicks", ""], ...overview.objectives.map((name) => [name, name])];
  return select("Positive labels", "objective", options, objective(overview, given) ?? "", (of) => change({ objective: of }));
}
