// Sentences: what is promised, what a bar means, what is not shown.

import { display, many, percent, power, shown } from "./numbers.js";

/** Whom a plan hides, as the object of "whether". */
export function hidden(plan) {
  if (plan.period !== undefined) return "what one person did within one period was there at all";
  return plan.unit === "user" ? "any one person was there at all, with everything she did" : "any single event ever happened";
}

/** The promise in one sentence. */
export function promise(plan) {
  return `Whoever reads everything here, now and later, can hardly tell whether ${hidden(plan)}.`;
}

/** The same in numbers. */
export function promiseNumbers(plan) {
  const { epsilon, delta } = plan.promise;
  const unit = plan.period !== undefined ? "user and period" : plan.unit;
  return `ε = ${Number(epsilon.toPrecision(3))}${delta ? `, δ = ${power(delta)}` : ""} per ${unit}`;
}

/** How many ticks the promise holds for. */
export function ticksOf(info) {
  return info.last_tick === null ? "without an end" : `for all ${info.last_tick.toLocaleString("en-US")} ticks together`;
}

/** What the numbers of a query are about, at the cap that held. */
export function about(query, cap) {
  let text = (query.error_about ?? query.about ?? "number").replace(/, if it is one of [0-9,]+ events/, "");
  if (cap !== undefined && cap !== null) text = text.replace(/(up to the cap of )[0-9,.]+( a user)/, `$1${shown(cap)}$2`);
  return text;
}

/** What a bar means, in words; `when` says of which time. */
export function meaning(query, coverage, rows, when) {
  const cap = rows.find((row) => row.cap !== undefined)?.cap;
  const isOpen = (end, other) => rows.some((row) => row[end] === null && row[other] !== null);
  const what = `the true ${about(query, cap)}${when && !query.per ? `, ${when}` : ""}`;
  if (rows.every((row) => row.low === null && row.high === null)) return "Both ends are open: nothing bounds what the cap cuts off, or what it let in of earlier ticks when it was raised.";
  const chance = `With a chance of ${percent((1 + coverage) / 2)} each`, chosen = chosenByNoise(query);
  if (isOpen("high", "low")) return `${chance} low end is below ${what}. The high end is open: what the cap cuts off is missing, and nothing bounds it.${chosen}`;
  if (isOpen("low", "high")) return `${chance} high end is above ${what}. The low end is open: nothing bounds what is too much.${chosen}`;
  return `${percent(coverage)} of such intervals hold ${what}.${chosen}`;
}

/** What is said, after a blank, of numbers that are shown because they were high enough. */
function chosenByNoise(query) {
  if (["alarm", "trending"].includes(query.kind)) return " Near the threshold more of them miss: noise may have made the report, and the true number is then lower.";
  if (!query.threshold || !["histogram", "top_k", "heavy_hitters"].includes(query.kind)) return "";
  return " Of labels that have just appeared more of them miss: noise helped them up, and the true numbers are lower.";
}

/** What of it a window has: of different values and users those first seen in it. */
export function firstSeen(query) {
  return ["distinct", "users"].includes(query.kind) ? "first seen " : "";
}

/** What the cap does, where users are hidden. */
export function capped(query, rows, above) {
  const cap = rows.find((row) => row.cap !== undefined && row.cap !== null)?.cap;
  if (cap === undefined || cap === 1 || query.kind === "above_cap") return "";
  const { text, bar, isNoise } = above ? display(above, { never_below_zero: true }) : {};
  const told = !above ? "" : isNoise ? ` Of users who have more there are ${text}.` : ` About ${text} users (${bar}) have more.`;
  return `Of each user at most ${shown(cap)} count. What is beyond is missing${["mean", "quantiles"].includes(query.kind) ? "" : ", so numbers are rather too low than too high"}.${told}`;
}

/** What is said of labels that cannot be told from noise. */
export function unordered(noise, all) {
  if (!noise) return "";
  if (all === 1) return "The label cannot be told from noise.";
  return noise === all ? `${many(all, "label")}, none can be told from noise: they have no order.` : `${shown(noise)} of ${many(all, "label")} cannot be told from noise: ${noise === 1 ? "it has" : "they have"} no order.`;
}

/** That something was cut, and where it is as it was released. */
export const CUT = "Cut at 0: the table and downloads have the numbers as they were released.";

/** Why windows are as long as they are, where nobody chose; `length` is null where none is long enough. */
export function whyLength(length, tried) {
  if (length === null) return tried ? `Of windows of up to ${many(tried, "tick")} the last does not stand out from its noise, so what came so far is shown.` : "";
  return tried > 0 && tried < length ? `Of shorter windows the last does not stand out from its noise, so those of ${many(length, "tick")} are shown.` : "";
}

/** From when on a label is shown, at the cap that held. */
export function threshold(query, rows) {
  const cap = rows.find((row) => row.cap !== undefined)?.cap;
  const atCap = query.caps?.find((each) => each.cap === cap)?.threshold;
  const found = atCap ?? query.threshold;
  if (!found) return "";
  const { least, largest } = found;
  const some = largest > least ? ` (${shown(largest)} at some ticks)` : "";
  const total = query.kind === "trending" ? "" : " in all";
  return `Labels below about ${shown(least)}${total} are not shown${some}: a label that few share could tell who they are.`;
}

/** What silence of an alarm or trend means. */
export function silence(query, exhausted) {
  const charges = query.guarantee?.charges;
  if (!charges) return "Silence is not rarity: what stays below the threshold is never reported. Nothing is used up by a report.";
  const each = `Each user has ${many(charges, "charge")}, one for each report that she is in. `;
  if (!exhausted || !exhausted.high) return `${each}Nobody can have run out of them yet, so silence is quiet. Silence is not rarity: what stays below the threshold is never reported.`;
  return `${each}Up to ${shown(exhausted.high)} users may have none left (about ${shown(exhausted.estimate)} if the same ones were in every report). They are not counted any more, so silence is not rarity: a crowd of them would not be seen.`;
}

/** Of which time a number of a query is: a window or all so far. */
export function period(query, from, to) {
  const held = (query.error_about ?? query.about ?? "").startsWith("number of users of each ") ? ", each when she first holds it" : "";
  return from === null ? "so far" : `${firstSeen(query)}in ${from + 1 === to ? "this tick" : `these ${many(to - from, "tick")}`}${held}`;
}

/** What a query is called, as a short line beneath its title. */
export function called(query) {
  const text = query.called ?? query.kind;
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${query.where ? `, where ${query.where}` : ""}`;
}
