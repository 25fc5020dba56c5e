// The calculator of epsilon.md. Numbers come from planner.json, which docs/site/export_planner.py writes from real plans.
"use strict";

const HORIZONS = [
  ["1", "once"], ["24", "a day of hours (24 releases)"], ["168", "a week of hours (168)"], ["720", "a month of hours (720)"],
  ["8760", "a year of hours (8,760)"], ["105120", "a year of five minutes (105,120)"], ["none", "without an end"],
];
const UNITS = [
  ["event", "one event"], ["user-1", "one user, of whom 1 event counts"], ["user-10", "one user, of whom 10 events count"],
  ["user-100", "one user, of whom 100 events count"], ["user-day", "one user's day (10 events of it count)"],
];
const QUESTIONS = [["1", "1 question"], ["3", "3 questions"], ["10", "10 questions"]];
const EPSILONS = [0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8];
const GUESSES = [["0.5", "1 in 2"], ["0.1", "1 in 10"], ["0.01", "1 in 100"], ["0.0001", "1 in 10,000"]];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function choice(name, label, options, chosen) {
  const select = element("select", { id: name });
  for (const [value, text] of options) {
    const option = element("option", { value }, text);
    option.selected = value === chosen;
    select.append(option);
  }
  return [element("label", { for: name }, label), select];
}

// A value at epsilon, on the straight line between the computed points in logarithms.
function between(epsilons, cells, field, epsilon) {
  const place = epsilons.findIndex((each) => each >= epsilon - 1e-9);
  const here = cells[Math.max(place, 0)]?.[field];
  if (place <= 0 || here === undefined || Math.abs(epsilons[place] - epsilon) < 1e-9) return here;
  const before = cells[place - 1][field];
  if (before === undefined) return undefined;
  const share = Math.log(epsilon / epsilons[place - 1]) / Math.log(epsilons[place] / epsilons[place - 1]);
  return Math.exp(Math.log(before) * (1 - share) + Math.log(here) * share);
}

function rounded(value) {
  if (value === undefined) return "not possible";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(2).replace(/\.0$/, "");
}

// In two digits, rounded up: it is what a guess becomes at most.
function percent(share) {
  const step = 10 ** (Math.floor(Math.log10(100 * share)) - 1);
  return share >= 0.985 ? "99 % or more" : `${(Math.ceil((100 * share) / step - 1e-9) * step).toPrecision(2)} %`;
}

function picture(epsilons, cells, epsilon) {
  const [width, height, left, bottom, top] = [560, 240, 58, 40, 14];
  const values = cells.map((cell) => cell.error);
  const logs = values.map(Math.log10);
  const [least, most] = [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs) + 1e-9)];
  const ends = [Math.log(epsilons[0]), Math.log(epsilons.at(-1))];
  const x = (value) => left + ((Math.log(value) - ends[0]) / (ends[1] - ends[0])) * (width - left - 16);
  const y = (value) => height - bottom - ((Math.log10(value) - least) / (most - least)) * (height - bottom - top);
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "curve" });
  drawn.append(shape("title", {}, "The error of a count against epsilon, for what was chosen above"));
  for (let power = least; power <= most; power++) {
    drawn.append(shape("line", { x1: left, x2: width - 16, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }));
    drawn.append(shape("text", { x: left - 8, y: y(10 ** power) + 4, "text-anchor": "end" }, (10 ** power).toLocaleString("en")));
  }
  for (const each of epsilons.filter((value) => [0.1, 0.2, 0.5, 1, 2, 4, 8].includes(value)))
    drawn.append(shape("text", { x: x(each), y: height - bottom + 18, "text-anchor": "middle" }, String(each)));
  drawn.append(shape("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "epsilon"));
  drawn.append(shape("text", { x: width - 16, y: top + 14, "text-anchor": "end" }, "error of a count (95 %)"));
  drawn.append(shape("polyline", { points: epsilons.map((each, place) => `${x(each)},${y(values[place])}`).join(" "), class: "line" }));
  drawn.append(shape("circle", { cx: x(epsilon), cy: y(between(epsilons, cells, "error", epsilon)), r: 6, class: "point" }));
  return drawn;
}

function build(place, planner) {
  const slider = element("input", { id: "epsilon", type: "range", min: 0, max: EPSILONS.length - 1, value: EPSILONS.indexOf(1) });
  const controls = element(
    "div", { class: "controls" },
    ...choice("unit", "Hidden is", UNITS, "event"),
    ...choice("horizon", "Released", HORIZONS, "720"),
    ...choice("questions", "Asked", QUESTIONS, "1"),
    ...choice("guess", "Somebody's guess before", GUESSES, "0.01"),
    element("label", { for: "epsilon" }, "Epsilon"), slider,
  );
  const [words, chart] = [element("div", { class: "words", "aria-live": "polite" }), element("div")];
  place.replaceChildren(controls, words, chart);
  const show = () => {
    const [unit, questions] = [value("unit"), value("questions")];
    document.getElementById("horizon").disabled = unit === "user-day";
    const horizon = unit === "user-day" ? "none" : value("horizon");
    const epsilon = EPSILONS[slider.value];
    const cells = planner.cells[`${unit}/${horizon}/${questions}`];
    const of_labels = planner.cells[`${unit}/${horizon}/1`];
    const guess = Number(value("guess"));
    const after = (guess * Math.exp(epsilon)) / (1 - guess + guess * Math.exp(epsilon));
    const shown = between(planner.epsilons, of_labels, "shown_from", epsilon);
    words.replaceChildren(
      element("p", {}, element("strong", {}, `epsilon ${epsilon}`), ` (delta 1e-9): a guess of ${percent(guess)} becomes at most ${percent(after)}.`),
      element("p", {}, "Each count is within ", element("strong", {}, rounded(between(planner.epsilons, cells, "error", epsilon))), " of the truth, 19 times out of 20."),
      element("p", {}, `As a single question, a label that nobody listed appears from about ${rounded(shown)} events on.`),
    );
    chart.replaceChildren(picture(planner.epsilons, cells, epsilon));
  };
  const value = (name) => document.getElementById(name).value;
  controls.addEventListener("input", show);
  show();
}

document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("calculator");
  if (place) build(place, JSON.parse(document.getElementById("planner").textContent));
});
