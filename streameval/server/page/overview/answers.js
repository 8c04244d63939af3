// The answer that somebody on call came for: of each model what is live, its verdict, since when, by how much, and where to go on.

import { href } from "../address.js";
import { amount, bounds, confidence, difference, MARKS, NOT_ANY_MORE } from "../differences.js";
import { h, replace } from "../dom.js";
import { metricTerm } from "../explain.js";
import { age, clock, dateTime, day, inZone, short } from "../format.js";
import { metric } from "../metrics.js";
import { badge, shorten, traffic } from "../names.js";
import { DOCS } from "../registry.js";
import { servesNobody } from "../series.js";
import { taking } from "../share.js";
import { awaited } from "../waiting.js";

const URGENT = { worse: 0, undecided: 1, not_worse: 2 };

const MOST_NAMED = 3; // of the live versions of a model that are worse

// Is what is live all right? First what is live and worse, whichever deploy it came with; then the verdict on every model's newest
// deploy, the worst first, and what serves without one. `models`: the names of those that serve.
export function answers(place, overview, models) {
  const said = overview.verdicts.filter((one) => !servesNobody(one)).sort((a, b) => URGENT[a.verdict] - URGENT[b.verdict]);
  const others = models.filter((model) => !said.some((one) => one.model === model));
  const newest = new Set(said.map((one) => one.comparison));
  const older = overview.worse.map((one) => {
    const [first, ...more] = one.verdicts;
    if (more.length) return together(one, overview);
    return newest.has(first.comparison) ? null : verdict(first, overview);
  });
  replace(place, older, said.map((one) => verdict(one, overview)), others.length || !said.length ? undecided(overview, others) : null);
}

// As cards without the colours and marks of an alarm.
export const quiet = (place, verdicts, overview) => replace(place, verdicts.map((one) => verdict(one, overview)));

function verdict(one, overview) {
  const asOf = overview.as_of;
  const calm = servesNobody(one);
  return h(
    "article",
    { class: "verdict", "data-verdict": one.verdict, "data-calm": calm, "data-supported": one.supported_now === false ? "false" : null },
    h("span", { class: "mark", "aria-hidden": "true" }, calm ? "·" : one.verdict === "not_worse" && one.supported_now === false ? MARKS.undecided : MARKS[one.verdict]),
    h(
      "div",
      { class: "says" },
      h("strong", { title: one.claim }, claim(one), " ", badge(one, overview), one.supported_now === false ? [" ", h("span", { class: "badge" }, NOT_ANY_MORE)] : null),
      h("p", { class: "words" }, evidence(one, asOf)),
      h("p", { class: "quiet when" }, "Deployed ", moment(one.deployed_at, asOf), one.decided_at ? [", decided ", moment(one.decided_at, asOf)] : ", not decided yet", h("span", { class: "more" }, `; ${amount(one, short)}`)),
    ),
    links(one),
    one.decided_on && one.remarks.length ? h("p", { class: "quiet remarks" }, `${one.remarks.join("; ")}.`.replace(/^./, (first) => first.toUpperCase())) : null,
  );
}

// Several live versions of a model that are worse: how many, and which, each with its evidence.
function together({ model, versions, verdicts }, overview) {
  const named = verdicts.slice(0, MOST_NAMED);
  const more = versions.length - named.length;
  const are = named.some((one) => one.supported_now === false) ? "were found worse" : "are worse";
  const of = model === "default" ? "" : ` of ${shorten(model, 28)}`;
  const line = (one, i) =>
    h(
      "p",
      { class: "words" },
      h("a", { href: href("comparisons", { id: one.comparison }), title: one.claim, "data-focus": `worse-${one.comparison}` }, shorten(one.candidate, 28)), " ", badge(one, overview), ` against ${shorten(one.baseline, 28)}: `,
      evidence(one, overview.as_of, i === named.length - 1), one.supported_now === false ? [" ", h("span", { class: "badge" }, NOT_ANY_MORE)] : null,
    );
  return h(
    "article",
    { class: "verdict", "data-verdict": "worse", "data-versions": versions.length },
    h("span", { class: "mark", "aria-hidden": "true" }, MARKS.worse),
    h("div", { class: "says" }, h("strong", { title: versions.join(", ") }, `${versions.length} live versions${of} ${are}: ${named.map((one) => shorten(one.candidate, 28)).join(", ")}${more ? ` and ${more} more` : ""}`), named.map(line)),
    h("nav", { class: "links", "aria-label": `On ${model}, worse` }, runbookAt(verdicts.every((one) => one.setup === "before_after") ? "DeployMaybeWorse" : "DeployWorse", `runbook-worse-${model}`)),
  );
}

// Long names are shortened: the answer is on the first screen. The title has them whole.
const claim = ({ claim: text, candidate, baseline, model }) => [model, candidate, baseline].reduce((words, name) => words.replace(name, () => shorten(name, 28)), text);

// When, with the date when it is another day than that of `asOf`, and how long ago.
const moment = (time, asOf) => [h("time", { datetime: time }, day(time) === day(asOf) ? clock(time) : dateTime(time)), h("span", { class: "more" }, ` (${age(Date.parse(time))} ago)`)];

// `confident`: whether to say what its bounds hold with.
function evidence(one, asOf, confident = true) {
  const { decided_on: on, decided_now: now } = one;
  if (!on) return inZone(one.words.slice(one.claim.length).replace(/^: /, ""), asOf);
  const size = (of) => [h("b", {}, difference(on.metric, of.difference)), ` (${bounds(on.metric, of)})`];
  return [
    on.alone ? "" : "All metrics together, first ", metricTerm(on.metric, metric(on.metric).name), " ", size(on), " when decided",
    now ? ["; now ", size(now)] : null,
    confident ? h("span", { class: "quiet more" }, ` (each bound with ${confidence(one)})`) : null,
  ];
}

function links(one) {
  const runbook = one.withheld ? "ComparisonWithheld" : { worse: one.setup === "before_after" ? "DeployMaybeWorse" : "DeployWorse", undecided: "DeployUndecidedTooLong" }[one.verdict];
  const evidenceAt = href("comparisons", { id: one.comparison });
  return h(
    "nav",
    { class: "links", "aria-label": `On ${one.model} ${one.candidate}` },
    h("a", { href: evidenceAt, "data-focus": one.comparison }, "Evidence"),
    runbook && !servesNobody(one) ? runbookAt(runbook, `runbook-${one.comparison}`) : null,
    taking(`${one.model} ${one.candidate}`, { link: () => evidenceAt }),
  );
}

const runbookAt = (name, focus) => h("a", { href: `${DOCS}/runbooks/Streameval${name}.md`, target: "_blank", rel: "noopener", "data-focus": focus }, "Runbook");

// What is live without a verdict, or what is awaited.
function undecided(overview, models) {
  const live = (model) => {
    const worse = overview.worse.find((one) => one.model === model)?.versions ?? []; // said above
    const versions = new Map(overview.results.filter((row) => row.model === model && row.role === "live" && !worse.includes(row.version)).map((row) => [row.version, traffic(row, overview)]));
    return `${shorten(model)} ${[...versions].map(([version, share]) => `${shorten(version)}${share === null ? "" : ` (${share})`}`).join(", ")}`;
  };
  const known = overview.results.length > 0;
  return h(
    "article",
    { class: "verdict", "data-verdict": "none" },
    h("span", { class: "mark", "aria-hidden": "true" }, "·"),
    h(
      "div",
      { class: "says" },
      h("strong", {}, known ? `Live: ${models.map(live).join("; ") || "nothing"}` : overview.preparing ? "Starting" : "Collecting"),
      h("p", { class: "words" }, known ? "Not compared yet: a verdict follows once a new version has enough final labels." : awaited(overview)),
    ),
  );
}
