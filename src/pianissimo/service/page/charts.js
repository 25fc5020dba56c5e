// Charts as SVG: estimates over time, each with its bar. Colors and strokes are the style sheet's.

import { fresh, h, put, s, say } from "./dom.js";
import { axis } from "./numbers.js";

const EDGE = { left: 52, right: 14, top: 10, bottom: 24 };
const MOST_DOTS = 48;
/** From how many points on a band is drawn, and not a bar for each. */

/** Round numbers across a range. */
export function steps(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted) || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 2.5, 5, 10].find((each) => each * size >= raw * 0.999);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) found.push(place * step);
  return found;
}

/** Where an open end is drawn to: as far from the estimate as the other end. */
function ends(point) {
  const middle = point.estimate ?? point.low ?? point.high ?? 0;
  const low = point.low ?? (point.high === null ? middle : 2 * middle - point.high);
  const high = point.high ?? (point.low === null ? middle : 2 * middle - point.low);
  return [low, high];
}

/** A range that shows all estimates and their bars, as far as bars say something beside them. */
function range(series) {
  if (series.length > 1) return rangeOfMany(series);
  const points = series[0]?.points ?? [];
  const middles = points.map((point) => point.estimate).filter((value) => typeof value === "number");
  const widths = points.map((point) => { const [a, b] = ends(point); return b - a; }).sort((a, b) => a - b);
  if (!points.length) return [0, 1];
  const least = Math.min(...(middles.length ? middles : [0])), most = Math.max(...(middles.length ? middles : [1]));
  const room = Math.max(1.6 * (most - least), 1.5 * (widths[widths.length >> 1] ?? 0), Math.abs(most) * 0.02, 1e-9);
  let low = Math.max(least - room, Math.min(...points.map((point) => ends(point)[0]), least));
  let high = Math.min(most + room, Math.max(...points.map((point) => ends(point)[1]), most));
  const truths = points.map((point) => point.truth).filter((value) => typeof value === "number");
  low = Math.min(low, ...truths);
  high = Math.max(high, ...truths);
  if (low > 0 && low < 0.45 * high) low = 0;
  if (high === low) high = low + 1;
  const pad = 0.06 * (high - low);
  return [low === 0 ? 0 : low - pad, high + pad];
}

/** The same for quantiles: bars of the outermost may reach over all numbers, and a few estimates of the first ticks too. */
function rangeOfMany(series) {
  const middles = series.flatMap((each) => {
    const sorted = each.points.map((point) => point.estimate).filter((value) => typeof value === "number").sort((a, b) => a - b);
    const cut = Math.floor(sorted.length * 0.2);
    return sorted.length ? [sorted[cut], sorted[sorted.length - 1 - cut]] : [];
  });
  if (!middles.length) return [0, 1];
  const least = Math.min(...middles), most = Math.max(...middles);
  const room = 0.3 * (most - least) || Math.abs(most) * 0.1 || 1;
  const bottom = Math.min(...series[0].points.map((point) => point.low ?? least));
  return [least >= 0 && least - room < 0 ? 0 : Math.max(bottom, least - room), most + room];
}

/** A chart of one or several series over ticks, with a cursor for mouse and keys. */
export class SeriesChart {
  constructor({ label, height = 190 }) {
    this.svg = s("svg", { role: "img", tabindex: 0, height, class: "chart", "aria-label": label });
    this.readout = h("p", { class: "readout", "aria-hidden": "true" });
    this.element = h("div", { class: "chart-box" }, this.svg, this.readout);
    this._height = height;
    this._clip = fresh("clip");
    this._data = null;
    this._at = null;
    this.svg.addEventListener("pointermove", (event) => this._point(event.clientX - this.svg.getBoundingClientRect().left));
    this.svg.addEventListener("pointerleave", () => this._move(null));
    this.svg.addEventListener("blur", () => this._move(null));
    this.svg.addEventListener("keydown", (event) => this._key(event));
    new ResizeObserver(() => this._draw()).observe(this.element);
  }

  /** Show other data: {series, first, last, when(tick, ticks shown), tell(tick), label}. */
  show(data) {
    this._data = data;
    this.svg.setAttribute("aria-label", data.label);
    this._draw();
  }

  _draw() {
    const width = Math.floor(this.element.clientWidth);
    if (!this._data || width < 60) return;
    const { series, first, last } = this._data;
    const right = series.length > 1 ? 46 : EDGE.right;
    const inner = width - EDGE.left - right, tall = this._height - EDGE.top - EDGE.bottom;
    const [low, high] = range(series);
    this._x = (tick) => EDGE.left + (last === first ? inner / 2 : ((tick - first) / (last - first)) * inner);
    this._y = (value) => EDGE.top + (1 - (Math.max(low - (high - low), Math.min(high + (high - low), value)) - low) / (high - low)) * tall;
    const parts = [
      s("defs", {}, s("clipPath", { id: this._clip }, s("rect", { x: EDGE.left - 6, y: EDGE.top - 2, width: inner + 12, height: tall + 4 }))),
      ...this._grid(low, high, width - right, inner),
    ];
    const inside = s("g", { "clip-path": `url(#${this._clip})` });
    series.forEach((each, place) => inside.append(...this._series(each, place, series.length, inner)));
    parts.push(inside);
    if (series.length > 1) parts.push(...this._names(series, width - right));
    this._cursor = s("line", { class: "cursor", y1: EDGE.top, y2: EDGE.top + tall, x1: -9, x2: -9 });
    parts.push(this._cursor);
    this.svg.setAttribute("width", width);
    put(this.svg, ...parts);
    this._move(this._at);
  }

  _grid(low, high, right, inner) {
    const { first, last, when } = this._data;
    const parts = [];
    for (const value of steps(low, high, 4)) {
      const y = this._y(value);
      parts.push(s("line", { class: value === 0 ? "axis" : "grid", x1: EDGE.left, x2: right, y1: y, y2: y }));
      parts.push(s("text", { class: "tick", x: EDGE.left - 8, y: y + 3.5, "text-anchor": "end" }, axis(Number(value.toPrecision(12)))));
    }
    const wide = 10 + 6.4 * Math.max(8, when(last, last - first).length);
    const wanted = Math.max(1, Math.min(6, Math.floor(inner / wide), last - first));
    const marks = last === first ? [last] : steps(first, last, wanted).filter((tick) => Number.isInteger(tick));
    for (const tick of marks) {
      const x = this._x(tick);
      const anchor = x > right - wide / 2.4 ? "end" : x < EDGE.left + wide / 4 ? "start" : "middle";
      parts.push(s("text", { class: "tick", x, y: this._height - 6, "text-anchor": anchor }, when(tick, last - first)));
    }
    return parts;
  }

  _series({ points, color }, place, all, inner) {
    const shade = `c${color ?? place}`;
    const parts = [];
    const asDots = all === 1 && points.length <= Math.min(MOST_DOTS, inner / 9);
    if (asDots) {
      const thick = Math.max(3, Math.min(12, (inner / Math.max(points.length, 8)) * 0.55));
      parts.push(s("path", { class: `thread ${shade}`, d: this._line(points, "estimate") }));
      for (const point of points) {
        const x = this._x(point.tick), [low, high] = ends(point);
        const isOpen = point.high === null || point.low === null;
        const rod = (from, to, more) => s("line", { class: `bar ${shade}${more}`, "stroke-width": thick, x1: x, x2: x, y1: this._y(from), y2: this._y(to) + 0.01 });
        if (!isOpen) parts.push(rod(low, high, ""));
        else parts.push(rod(low, point.estimate, ` cut${point.low === null ? " open" : ""}`), rod(point.estimate, high, ` cut${point.high === null ? " open" : ""}`));
        if (typeof point.estimate === "number") {
          parts.push(s("circle", { class: `dot ${shade}`, cx: x, cy: this._y(point.estimate), r: Math.max(1.6, Math.min(3.2, thick * 0.36)) }));
        }
      }
    } else {
      const middle = (point) => point.estimate ?? point.low ?? point.high ?? 0;
      const ribbon = (below, above, more) => {
        const upper = points.map((point) => `${this._x(point.tick)},${this._y(above(point))}`);
        const lower = points.map((point) => `${this._x(point.tick)},${this._y(below(point))}`).reverse();
        return s("path", { class: `band ${shade}${more}`, d: `M${upper.join("L")}L${lower.join("L")}Z` });
      };
      const isOpen = (field) => (points.some((point) => point[field] === null) ? " open" : "");
      parts.push(ribbon((point) => ends(point)[0], middle, isOpen("low")), ribbon(middle, (point) => ends(point)[1], isOpen("high")));
      parts.push(s("path", { class: `line ${shade}`, d: this._line(points, "estimate") }));
    }
    if (points.some((point) => typeof point.truth === "number")) parts.push(s("path", { class: "truth", d: this._line(points, "truth") }));
    return parts;
  }

  _line(points, field) {
    let isOn = false;
    return points.map((point) => {
      if (typeof point[field] !== "number") { isOn = false; return ""; }
      const step = `${isOn ? "L" : "M"}${this._x(point.tick)},${this._y(point[field])}`;
      isOn = true;
      return step;
    }).join("");
  }

  /** Names beside the last points, moved apart where they would touch. */
  _names(series, right) {
    const named = series.map((each, place) => ({ name: each.name, shade: `c${each.color ?? place}`, y: this._y(each.points.at(-1)?.estimate ?? 0) })).sort((a, b) => a.y - b.y);
    let above = EDGE.top - 4;
    for (const each of named) { each.y = Math.max(each.y, above + 13); above = each.y; }
    let below = this._height - EDGE.bottom + 6;
    for (const each of [...named].reverse()) { each.y = Math.min(each.y, below); below = each.y - 13; }
    return named.map((each) => s("text", { class: `name ${each.shade}`, x: right + 7, y: each.y + 4 }, each.name));
  }

  _key(event) {
    if (!this._data) return;
    const { first, last } = this._data, at = this._at ?? last;
    const moved = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: first, End: last }[event.key];
    if (moved === undefined) return;
    event.preventDefault();
    this._move(Math.max(first, Math.min(last, moved)));
  }

  _point(across) {
    if (!this._data || !this._x) return;
    const ticks = this._data.series[0]?.points.map((point) => point.tick) ?? [];
    if (!ticks.length) return;
    this._move(ticks.reduce((best, tick) => (Math.abs(this._x(tick) - across) < Math.abs(this._x(best) - across) ? tick : best)));
  }

  _move(tick) {
    this._at = tick;
    if (!this._cursor) return;
    const x = tick === null ? -9 : this._x(tick);
    this._cursor.classList.toggle("off", tick === null);
    this._cursor.setAttribute("x1", x);
    this._cursor.setAttribute("x2", x);
    say(this.readout, tick === null ? this._data.rest ?? "" : this._data.tell(tick));
  }
}

/** The bar of one row: how far the estimate reaches, and its interval over it. */
export function rowBar(row, [low, high], width, height) {
  const x = (value) => 1 + ((Math.max(low, Math.min(high, value)) - low) / (high - low || 1)) * (width - 2);
  const [left, right] = ends(row);
  const middle = height / 2, zero = x(Math.max(low, Math.min(0, high)));
  const parts = [];
  if (typeof row.estimate === "number") {
    const end = x(row.estimate);
    parts.push(s("rect", { class: "amount", x: Math.min(zero, end), y: middle - 5, width: Math.abs(end - zero), height: 10, rx: 2 }));
  }
  const across = typeof row.estimate === "number" ? x(row.estimate) : x((left + right) / 2);
  const arm = (end, far, isOpen) => s("line", { class: `whisker${isOpen ? " open" : ""}`, x1: across, x2: isOpen ? far : x(end), y1: middle, y2: middle });
  parts.push(arm(left, 1, row.low === null), arm(right, width - 1, row.high === null));
  for (const [value, other] of [[row.low, left], [row.high, right]]) {
    if (value !== null) parts.push(s("line", { class: "whisker", x1: x(other), x2: x(other), y1: middle - 4, y2: middle + 4 }));
  }
  if (typeof row.estimate === "number") parts.push(s("circle", { class: "point", cx: x(row.estimate), cy: middle, r: 2.6 }));
  if (typeof row.truth === "number") parts.push(s("line", { class: "truth", x1: x(row.truth), x2: x(row.truth), y1: 2, y2: height - 2 }));
  if (low < 0) parts.push(s("line", { class: "axis", x1: zero, x2: zero, y1: 1, y2: height - 1 }));
  return s("svg", { class: "row-bar", width, height, "aria-hidden": "true", focusable: "false" }, ...parts);
}

/** What was reported when: a row for each label, a mark for each report. */
export function timeLine({ rows, first, last, when, width, label }) {
  const line = 26, left = Math.min(150, Math.max(60, Math.max(...rows.map((row) => row.name.length), 4) * 6.6 + 10));
  const inner = width - left - 30, height = rows.length * line + 26;
  const x = (tick) => left + 12 + (last === first ? inner / 2 : ((tick - first) / (last - first)) * inner);
  const largest = Math.max(1, ...rows.flatMap((row) => row.reports.map((each) => each.estimate ?? 0)));
  const parts = [];
  rows.forEach((row, place) => {
    const y = place * line + line / 2;
    const name = row.name.length > 20 ? `${row.name.slice(0, 19)}…` : row.name;
    parts.push(s("text", { class: "label", x: left - 10, y: y + 4, "text-anchor": "end" }, name));
    parts.push(s("line", { class: "grid", x1: left, x2: width - 18, y1: y, y2: y }));
    for (const each of row.reports) {
      const size = 3 + 6 * Math.sqrt(Math.max(0, each.estimate ?? 0) / largest);
      parts.push(s("circle", { class: `report c${place % 7}`, cx: x(each.tick), cy: y, r: size }));
    }
  });
  for (const tick of last === first ? [last] : steps(first, last, Math.max(1, Math.min(6, Math.floor(inner / 92), last - first))).filter(Number.isInteger)) {
    const anchor = x(tick) > width - 40 ? "end" : "middle";
    parts.push(s("text", { class: "tick", x: x(tick), y: height - 6, "text-anchor": anchor }, when(tick, last - first)));
  }
  return s("svg", { class: "chart time-line", role: "img", "aria-label": label, width, height }, ...parts);
}

/** How a budget was spent: steps that rise towards the cap. */
export function spending({ points, cap, width, label, whenLabels }) {
  const height = 170, right = width - 16, bottom = height - EDGE.bottom;
  const top = cap ?? Math.max(...points.map((point) => point.spent), 1e-9);
  const x = (place) => EDGE.left + (points.length < 2 ? 0 : (place / points.length) * (right - EDGE.left));
  const y = (value) => EDGE.top + 6 + (1 - value / (top * 1.06)) * (bottom - EDGE.top - 6);
  const parts = steps(0, top * 1.04, 4).flatMap((value) => [
    s("line", { class: value === 0 ? "axis" : "grid", x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }),
    s("text", { class: "tick", x: EDGE.left - 8, y: y(value) + 3.5, "text-anchor": "end" }, axis(Number(value.toPrecision(6)))),
  ]);
  let path = `M${EDGE.left},${y(0)}`;
  points.forEach((point, place) => { path += `V${y(point.spent)}H${x(place + 1) || right}`; });
  if (points.length) path += `H${right}`;
  parts.push(s("path", { class: "band c0", d: `${path}V${y(0)}Z` }), s("path", { class: "line c0", d: path }));
  if (cap) parts.push(s("line", { class: "limit", x1: EDGE.left, x2: right, y1: y(cap), y2: y(cap) }), s("text", { class: "tick", x: right, y: y(cap) - 5, "text-anchor": "end" }, `cap ${axis(cap)}`));
  const wanted = Math.max(1, Math.min(points.length, Math.floor((right - EDGE.left) / 110)));
  points.forEach((_, place) => {
    if (place % Math.ceil(points.length / wanted) === 0) parts.push(s("text", { class: "tick", x: x(place) + 2, y: height - 6, "text-anchor": "start" }, whenLabels[place]));
  });
  return s("svg", { class: "chart", role: "img", "aria-label": label, width, height }, ...parts);
}
