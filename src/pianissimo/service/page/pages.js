// Pages beside the numbers: the budget, the plan, and what all of it means.

import { ask, of } from "./api.js";
import { csv, save } from "./card.js";
import { spending } from "./charts.js";
import { h, put } from "./dom.js";
import { cannotBeTold, exact, many, percent, power, shown, title } from "./numbers.js";
import { numbersTable } from "./rows.js";
import { called, hidden, promise, promiseNumbers, ticksOf } from "./words.js";

const isNumber = (value) => typeof value === "number";

const price = (cost) => (isNumber(cost?.epsilon) ? `ε ${Number(cost.epsilon.toPrecision(4))}${cost.delta ? `, δ ${power(cost.delta)}` : ""}` : "not known");

/** What was spent of the cap, by whom and when. */
export async function budgetPage(history) {
  const found = await ask(of(history.name, "/budget"));
  const page = h("section", { class: "page" }, h("h1", {}, "Budget"),
    h("p", { class: "lead" }, "Every promise has a price, and prices add up. The ledger books each one before anything is released; when the cap is reached, nothing more can be asked of these data."));
  if (!found.available) {
    page.append(h("p", { class: "empty" }, "The ledger of this stream cannot be read from here. What the stream itself may spend is on the plan's page."),
      facts([["This stream", price(history.plan.promise)], ["Of its own budget", price(history.plan.budget)]]));
    return page;
  }
  page.append(facts([["Cap", price(found.cap)], ["Spent", price(found.spent)], ["Left", price(found.left)]]));
  if (isNumber(found.cap?.epsilon) && isNumber(found.spent?.epsilon)) {
    const share = Math.min(1, found.spent.epsilon / found.cap.epsilon);
    const meter = h("div", { class: "meter", role: "meter", "aria-label": "Share of the cap that is spent", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share) }, h("span", {}));
    meter.firstChild.style.setProperty("width", `${100 * share}%`);
    page.append(meter, h("p", { class: "quiet" }, `${percent(share)} of the cap's epsilon is spent.`));
  }
  const times = (moment) => new Date(moment).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short", timeZone: history.info.time_zone ?? "UTC" });
  let sum = 0;
  const points = found.charges.map((charge) => ({ spent: (sum += charge.cost?.epsilon ?? 0) }));
  const box = h("div", { class: "chart-box" });
  page.append(h("h2", {}, "Over time"), box, h("p", { class: "quiet" }, "Each step is a charge, drawn as if epsilons simply added up; composed, they cost a little less, as the numbers above say."));
  const draw = () => {
    if (box.clientWidth > 60) put(box, spending({ points, cap: found.cap?.epsilon, width: box.clientWidth, label: `${many(points.length, "charge")} that add up to epsilon ${Number(sum.toPrecision(4))}. The table below has them.`, whenLabels: found.charges.map((charge) => times(charge.time)) }));
  };
  new ResizeObserver(draw).observe(box);
  const columns = [
    { name: "number", is: (row) => String(row.number) },
    { name: "time", is: (row) => times(row.time) },
    { name: "who", is: (row) => row.who },
    { name: "what", is: (row) => row.what },
    { name: "epsilon", is: (row) => (isNumber(row.cost?.epsilon) ? exact(Number(row.cost.epsilon.toPrecision(6))) : "–") },
    { name: "delta", is: (row) => (isNumber(row.cost?.delta) ? power(row.cost.delta) : "–") },
    { name: "state", is: (row) => (row.settled ? "charged" : "reserved") },
  ];
  const rows = found.charges.map((row) => ({ number: row.number, time: row.time, who: row.who, what: row.what, epsilon: row.cost?.epsilon, delta: row.cost?.delta, settled: row.settled }));
  page.append(h("h2", {}, "By whom"), numbersTable("Charges", columns, [...found.charges].reverse()),
    h("p", {}, h("button", { type: "button", onclick: () => save(`${history.name}-budget.csv`, csv(Object.keys(rows[0] ?? { number: 0 }), rows), "text/csv") }, "Download as CSV")));
  return page;
}

/** What the stream does, and what else would have fitted. */
export function planPage(history) {
  const { plan, info } = history;
  const page = h("section", { class: "page" }, h("h1", {}, "Plan"), h("p", { class: "lead" }, promise(plan)),
    facts([
      ["Promise", promiseNumbers(plan)],
      ["Holds", ticksOf(info)],
      ["Of a budget of", price(plan.budget)],
      ["Bars", `${percent(plan.coverage)} hold`],
      ...(plan.tick ? [["A tick", plan.tick]] : []),
      ...(plan.origin ? [["Begins", plan.origin]] : []),
      ["Added up by", plan.promise.method],
    ]));
  for (const warning of plan.warnings ?? []) page.append(h("p", { class: "fault" }, `Warning: ${warning}.`));
  for (const each of plan.queries) page.append(queryPlan(each));
  page.append(h("p", { class: "quiet" }, "The plan was fixed before the first event, and no data can change it."),
    h("p", {}, h("button", { type: "button", onclick: () => save(`${history.name}-plan.json`, JSON.stringify(plan, null, 1), "application/json") }, "Download the plan")));
  return page;
}

function queryPlan(query) {
  const errors = [{ mechanism: query.mechanism, expected_error: query.expected_error, note: "chosen" }, ...query.alternatives.map((each) => ({ ...each, note: each.excluded || each.note }))];
  const columns = [
    { name: "mechanism", is: (row) => row.mechanism },
    { name: "typical error", is: (row) => `± ${shown(row.expected_error.typical, row.expected_error.typical < 100 ? 1 : 0)}` },
    { name: "largest error", is: (row) => `± ${shown(row.expected_error.largest, row.expected_error.largest < 100 ? 1 : 0)}` },
    { name: "note", is: (row) => row.note ?? "" },
  ];
  return h("section", { class: "planned" }, h("h2", {}, title(query.name)), h("p", { class: "quiet" }, called(query)),
    ...query.words.map((line) => h("p", {}, line.charAt(0).toUpperCase() + line.slice(1))),
    facts([
      ["Share of the budget", percent(query.share_of_budget)],
      ["Mechanism", query.mechanism],
      ["Noise", query.noise],
      ["By", query.guarantee.theorem],
      ["Reason", query.reason],
    ]),
    h("details", { class: "data" }, h("summary", {}, query.alternatives.length ? `What else would have fitted (${query.alternatives.length})` : "Its expected error"), numbersTable(`Mechanisms for ${title(query.name)}`, columns, errors)));
}

function facts(pairs) {
  return h("dl", { class: "facts" }, ...pairs.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** For readers without statistics. */
export function meaningPage(history) {
  const { plan, info } = history;
  const number = plan.queries.find((each) => each.kind === "count");
  const row = number && history.last?.releases[number.name]?.[0];
  const example = row && row.high !== null && !cannotBeTold(row)
    ? `For example, “${title(number.name)}” stands at ${shown(row.estimate)}, with an interval from ${shown(row.low)} to ${shown(row.high)}.`
    : "For example, a count may stand at 1,214, with an interval from 1,171 to 1,257.";
  const coverage = percent(plan.coverage), missed = Math.round(1 / (1 - plan.coverage));
  const part = (heading, ...texts) => [h("h2", {}, heading), ...texts.map((text) => h("p", {}, text))];
  return h("section", { class: "page prose" }, h("h1", {}, "What does this mean?"),
    h("p", { class: "lead" }, "The numbers on these pages are of crowds, and give away hardly anything about any one in them. This page explains how, without statistics."),
    ...part("Every number is a little off, on purpose",
      "Before a number leaves, chance is added to it: as if somebody rolled dice and added what came up. The truth is never stored here, and cannot be asked for.",
      "The dice are small beside a crowd and large beside one person. So a city of thousands can be counted well, and a single visit disappears among the dice."),
    ...part("What a bar says",
      `Beside each number is an interval, drawn as a bar. ${example} ${coverage} of such intervals hold the truth: of ${missed} intervals, about one does not. Which one, nobody knows.`,
      "If two bars overlap, do not say that one thing is more than the other. If they do not, you may, and will seldom be wrong."),
    ...part("Recent numbers and running totals",
      "A total of all that came so far grows and grows, and its bar becomes too small to see beside it. So cards show recent windows first: what the last tick, or the last few, have added. The switch on each card leads to the total.",
      "A window is as long as is needed for its number to stand out from the dice; the box above the cards has other lengths.",
      "Of something rare, the dice are larger than the number, and what is released may even be below zero. Such a number is shown as what it tells: that there are at most so many, or about none. Labels of this kind have no order, since any order of theirs would be that of the dice. The tables behind the pictures have the numbers as they were released."),
    ...part("“or more”",
      "Where people are protected with everything they do, only so many actions of each person count. What lies beyond that limit, the cap, is missing, and nobody knows how much it is. The interval has then no upper end, and says “or more”."),
    ...part("Labels that are not shown",
      "A word that only a few have used could tell who they are. So a label appears only when enough share it. That a label is not here does not mean that it never came."),
    ...part("Alarms, trends and silence",
      "An alarm rings when many do the same at the same time. Where people are protected with everything they do, each has a few charges, and each report that she is in takes one. Who has none left is not counted any more. So silence is not rarity: something may still be common among people who were in earlier reports. Cards say how many that may be."),
    ...part("What is promised",
      `${promise(plan)} That holds whatever else the reader knows, today or in ten years.`,
      `In numbers: ${promiseNumbers(plan)}, ${ticksOf(info)}. Epsilon says how much more, or less, likely anything on these pages can become by whether ${hidden(plan)}: at most by the factor ${Number(Math.exp(plan.promise.epsilon).toPrecision(3))}. ${plan.promise.delta ? `Delta, ${power(plan.promise.delta)}, is a chance that this fails.` : ""}`),
    ...part("What is not promised", limit(plan),
      "These pages can still teach something about people like you. If a medicine helps many, that is known of everybody who takes it, counted or not. What is protected is that you took part.",
      "The numbers are as good as the data that came in. Chance is added to what was counted; mistakes in the counting are not removed by it."),
    ...part("When numbers appear",
      `A tick is a slot of time. ${info.publish_after ? "Each is published at a fixed moment, whatever happened in it, so that not even the moment tells anything." : "Each is published when it is over and worked out."} What was once published never changes.`));
}

/** Whom the promise does not cover. */
function limit(plan) {
  if (plan.period !== undefined) return "The promise is for what one person did within one period. Who comes in many periods is hidden less well.";
  if (plan.unit === "user") return "A person who comes under several names is hidden under each of them, and less well with all.";
  return "The promise is for each single event. Who is behind many of them is hidden less well.";
}
