// Made of docs/glossary.md by `python -m docs.make`; do not edit. Term -> [meaning, section of the glossary].
export const TERMS = {
  "anytime-valid interval": ["an interval that holds at all moments at once; also confidence sequence", "comparisons"],
  "baseline": ["the version that it replaced; also champion", "comparisons"],
  "checkpoint": ["state and offsets of a partition on disk; a restart restores it", "time-and-state"],
  "click match rate": ["matched clicks over the clicks that should be matched by now", "events-and-labels"],
  "consumer lag": ["messages in Kafka that are not read yet", "events-and-labels"],
  "corrected": ["click that arrived after its label was mature, and corrected it", "event-outcomes"],
  "duplicate": ["an impression or click that is already known; counted once", "events-and-labels"],
  "impression": ["one item shown to one user, with the score (pClick) of the model that served it", "events-and-labels"],
  "invalid event": ["an event that cannot be read or breaks a rule, kept unchanged with the reason in the dead-letter topic or file", "events-and-labels"],
  "label": ["whether an impression was clicked within its attribution window", "events-and-labels"],
  "label delay": ["age of the newest final label", "events-and-labels"],
  "late": ["behind the watermark", "events-and-labels"],
  "margin": ["how much worse a version must be to be called worse (compare.margins)", "comparisons"],
  "tolerance": ["within how much of the baseline a version must be to be called not_worse (compare.tolerances)", "comparisons"],
  "unmatched click": ["a click without an impression within the correction horizon; also called an orphan", "events-and-labels"],
};
