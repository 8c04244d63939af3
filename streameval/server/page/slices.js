// The slices as options of a control: none, and every value of every dimension.

export function sliceOptions(dimensions, chosen) {
  const options = [["all traffic", "none"]];
  for (const [dimension, values] of Object.entries(dimensions ?? {})) {
    for (const value of values) options.push([`${dimension} = ${value}`, `${dimension}:${value}`]);
  }
  if (chosen !== "none" && !options.some(([, value]) => value === chosen)) options.push([chosen, chosen]);
  return options;
}
