// What is awaited, and until when, where there is nothing to show yet.

import { count, duration } from "./format.js";

// "First labels are final in about 14 s (attribution window 20 s); 1,845 impressions waiting."
export function awaited({ events, partitions, preparing, ready, attribution_window_seconds: attribution }) {
  const waits = events.pending ?? 0;
  if (preparing) return `Nothing has been read yet: ${preparing}.`;
  if (ready.assigned === false) return `Nothing is counted now: no partition is assigned to this monitor${ready.broker === false ? ", and no broker answers" : ""}.`;
  if (!events.impressions) return "No impression has arrived yet.";
  // labels are final in event time, which goes by as time does while events come
  const left = partitions
    .filter((one) => one.waiting_since && one.watermark)
    .map((one) => (Date.parse(one.waiting_since) - Date.parse(one.watermark)) / 1000 + attribution);
  const when = left.length ? `in about ${duration(Math.max(1, Math.round(Math.min(...left))))} (attribution window ${duration(attribution)})` : `${duration(attribution)} after their impression`;
  return `First labels are final ${when}; ${count(waits)} ${waits === 1 ? "impression" : "impressions"} waiting.`;
}
