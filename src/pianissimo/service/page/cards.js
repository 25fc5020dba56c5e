// One card for each kind of query.

import { SeriesChart, timeLine } from "./charts.js";
import { Card, CLEAR } from "./card.js";
import { h, put } from "./dom.js";
import { clearness, display, drawn, interval, many, places, quantileText, released, shown, title } from "./numbers.js";
import { LabelRows } from "./rows.js";
import { CUT, firstSeen, period, silence, threshold, unordered } from "./words.js";

const MOST_LABELLED_ROWS = 120_000;
/** As many rows the page asks for to draw one label over time. */

const LISTED = 8;

const FIRST = 10;
/** By how many labels it is judged whether windows are long enough. */

/** One number a tick: counts, sums, means, distinct values, users. */
export class NumberCard extends Card {
  constructor(...given) {
    super(...given);
    this.chart = new SeriesChart({ label: title(this.name), height: this.isLarge ? 320 : 190 });
    put(this.body, this.chart.element);
  }

  async draw() {
    const { series, now, from } = await seriesOf(this);
    if (!now) return false;
    this.body.hidden = false;
    const digits = places([now, ...series.map((each) => each.rows[0])]);
    const { text, bar, isNoise } = display(now, this.query, digits);
    this.head(text, isNoise ? "cannot be told from noise" : bar, timeOf(this, from), isNoise ? `As it was released: ${released(now, digits)}` : "");
    const points = series.map(({ tick, rows }) => ({ tick, ...drawn(rows[0], this.query), source: rows[0], truth: this.view.truth(this.name, null, this.isRecent ? tick - this.length : null, tick) }));
    this.chart.show({
      series: [{ name: title(this.name), points }],
      first: points[0].tick,
      last: points.at(-1).tick,
      when: (...given) => this.history.when(...given),
      tell: (tick) => told(this, points.find((point) => point.tick === tick), tick, digits),
      label: `${title(this.name)}: ${many(points.length, "interval")} over time, the last ${bar}. The table below has the numbers.`,
    });
    this.say([now], period(this.query, from, this.last), points.some((point) => point.source.low !== point.low) || isNoise ? CUT : "");
    const rows = series.map(({ tick, rows: [row] }) => ({ ...(this.isRecent ? { from: tick - this.length } : {}), tick, ...row })).reverse();
    this.keep(`${title(this.name)} over time`, rows, this.columnsOf(rows));
    return true;
  }
}

/** Quantiles: a ribbon for each. */
export class QuantileCard extends Card {
  constructor(...given) {
    super(...given);
    this.chart = new SeriesChart({ label: title(this.name), height: this.isLarge ? 360 : 230 });
    this.list = h("dl", { class: "values" });
    put(this.body, this.chart.element);
  }

  async draw() {
    const { series, from } = await seriesOf(this, true);
    const now = series.now ?? [];
    if (!now.length) return false;
    put(this.figure, this.list);
    this.body.hidden = false;
    const name = (row) => quantileName(this.labelOf(row));
    const digits = places(now);
    put(this.list, ...now.flatMap((row, place) => [h("div", { class: `value c${place % 7}` }, h("dt", {}, name(row)), h("dd", { class: "number" }, quantileText(row, this.labelOf(row), this.query.range, digits), h("span", { class: "quiet" }, interval(row, digits))))]));
    const keys = now.map((row) => this.labelOf(row));
    const lines = keys.map((key, place) => ({
      name: quantileShort(key),
      color: place % 7,
      points: series.all.map(({ tick, rows }) => ({ tick, ...(rows.find((row) => this.labelOf(row) === key) ?? { estimate: null, low: null, high: null }) })),
    }));
    const ticks = lines[0].points.map((point) => point.tick);
    if (ticks.length) {
      this.chart.show({
        series: lines,
        first: ticks[0],
        last: ticks.at(-1),
        when: (...given) => this.history.when(...given),
        tell: (tick) => `${this.history.whole(tick, this.isRecent ? tick - this.length : tick - 1)}: ${lines.map((line) => { const point = line.points.find((each) => each.tick === tick); return point ? `${line.name} ${quantileText(point, keys[lines.indexOf(line)], this.query.range, digits)}` : ""; }).filter(Boolean).join(", ")}`,
        label: `${title(this.name)} over time, a ribbon for each of ${keys.map(quantileName).join(", ")}. The table below has the numbers.`,
      });
    }
    this.say(now, period(this.query, from, this.last), "Ribbons reach over the picture where little is known of the largest or smallest values.");
    const rows = series.all.flatMap(({ tick, rows: each }) => each.map((row) => ({ ...(this.isRecent ? { from: tick - this.length } : {}), tick, ...row }))).reverse();
    this.keep(`${title(this.name)} over time`, rows, this.columnsOf(rows));
    return true;
  }
}

/** Labels with numbers: histograms, top lists, sums and means by key. */
export class LabelCard extends Card {
  constructor(...given) {
    super(...given);
    this.rows = new LabelRows({ label: title(this.name), pick: (label) => this._pick(label), isLarge: this.isLarge });
    this.picked = h("div", { class: "picked" });
    this.picked.hidden = true;
    put(this.body, this.picked, this.rows.element);
  }

  async draw() {
    const tick = this.last, from = this.isRecent ? Math.max(this.history.begin, tick - this.length) : null;
    const [now, before] = await Promise.all([this._at(tick), this._before(tick)]);
    const isTop = this.query.kind === "top_k" && !this.isRecent;
    const ranked = rank(this, now, isTop), old = new Map(rank(this, before, isTop).filter((row) => !row.isRest).map((row) => [row.label, row]));
    for (const row of ranked) {
      const earlier = old.get(row.label);
      if (row.rank && old.size && earlier?.rank !== null) row.change = earlier ? earlier.rank - row.rank : null;
      if (earlier?.rank && row.rank) row.isSure = earlier.worst < row.best || row.worst < earlier.best;
      if (!row.isRest) row.truth = this.view.truth(this.name, row.label, from, tick);
    }
    put(this.figure, h("p", { class: "quiet when" }, timeOf(this, from)));
    this.body.hidden = false;
    this.rows.show(ranked, `${title(this.name)}, ${timeOf(this, from)}`);
    const none = ranked.length ? "" : this.query.threshold ? "No label has passed the threshold yet." : "There is no label here yet.";
    const labels = ranked.filter((row) => !row.isRest), noise = labels.filter((row) => row.isNoise).length;
    this.say(now, period(this.query, from, tick), none, unordered(noise, labels.length), ranked.some((row) => row.isNoise) ? CUT : "", from !== null ? "Listed are labels that their totals have shown." : "", threshold(this.query, now));
    this.keep(`${title(this.name)}, ${timeOf(this, from)}`, ranked.map((row) => ({ ...(from === null ? {} : { from }), tick, ...row.source })), this.columnsOf(now.map((row) => ({ ...(from === null ? {} : { from }), ...row }))));
    if (this.view.label(this.name)) await this._drawPicked(this.view.label(this.name), ranked.length);
    else this.picked.hidden = true;
    return true;
  }

  /** Whether half of the first labels of all that came so far stand out. */
  async isClear(rows) {
    const largest = (await this.history.release(this.last)).releases[this.name] ?? [];
    const first = largest.filter((row) => this.labelOf(row) !== null && clearness(row, this.query) >= CLEAR).sort((a, b) => b.estimate - a.estimate).slice(0, FIRST);
    const found = new Map(rows.map((row) => [this.labelOf(row), row]));
    const clear = first.filter((row) => found.has(this.labelOf(row)) && clearness(found.get(this.labelOf(row)), this.query) >= CLEAR);
    return first.length > 0 && 2 * clear.length >= first.length;
  }

  async _at(tick) {
    if (this.isRecent) return (await this.history.recent(this.length, tick))?.releases[this.name] ?? [];
    return tick < 1 ? [] : (await this.history.release(tick)).releases[this.name] ?? [];
  }

  async _before(tick) {
    const earlier = tick - Math.max(this.length, this.query.every ?? 1);
    if (earlier < this.history.info.oldest_tick || (this.isRecent && earlier <= this.history.begin)) return [];
    return this._at(earlier);
  }

  _pick(label) {
    this.view.setLabel(this.name, this.view.label(this.name) === label ? null : label);
  }

  /** One label over time. */
  async _drawPicked(label, size) {
    if (!this.chart) {
      this.chart = new SeriesChart({ label, height: 150 });
      this.chartTitle = h("h3", {});
      put(this.picked, h("div", { class: "picked-head" }, this.chartTitle, h("button", { type: "button", class: "plain", onclick: () => this._pick(this.view.label(this.name)) }, "Close")), this.chart.element);
    }
    this.picked.hidden = false;
    this.rows.pick(label);
    put(this.chartTitle, label);
    const { series } = await seriesOf(this, true, Math.max(2, Math.min(this.view.span, Math.floor(MOST_LABELLED_ROWS / Math.max(1, size)))));
    const points = series.all.map(({ tick, rows }) => ({ tick, ...rows.find((row) => this.labelOf(row) === label) })).filter((point) => point.low !== undefined)
      .map((point) => ({ ...drawn(point, this.query), source: point, truth: this.view.truth(this.name, label, this.isRecent ? point.tick - this.length : null, point.tick) }));
    const digits = places(points);
    if (!points.length) return;
    this.chart.show({
      series: [{ name: label, points }],
      first: points[0].tick,
      last: points.at(-1).tick,
      when: (...given) => this.history.when(...given),
      tell: (tick) => told(this, points.find((point) => point.tick === tick), tick, digits),
      label: `${label} over time, the last ${display(points.at(-1).source, this.query, digits).bar}`,
    });
  }
}

/** Alarms and trends: what was reported when. */
export class MonitorCard extends Card {
  async draw() {
    const to = this.history.tick, first = Math.max(this.history.info.oldest_tick, to - this.view.span + 1);
    const found = await this._reports(first, to);
    this.body.hidden = false;
    const isAlarm = this.query.kind === "alarm";
    const exhausted = this.history.last.releases.exhausted?.find((row) => row.key === this.name);
    const now = found.filter((each) => each.tick === to);
    const headline = isAlarm ? (now.length ? "It rings" : "Quiet") : now.length ? many(now.length, "label") : "Nothing";
    this.head(headline, now.length ? (isAlarm ? this._size(now[0]) : now.slice(0, 3).map((each) => this._name(each)).join(", ")) : "at this tick", timeOf(this, to - 1));
    this.element.classList.toggle("rings", now.length > 0);
    this._timeLine(found, first, to, isAlarm);
    const listed = [...found].reverse().slice(0, LISTED);
    put(this._list, ...listed.map((each) => h("li", {}, h("span", { class: "quiet number", title: this.history.whole(each.tick) }, this.history.times ? `${each.tick} · ${this.history.when(each.tick, to - first)}` : `tick ${each.tick}`), h("span", { class: "report-name" }, isAlarm ? "rang" : this._name(each)), h("span", { class: "number" }, this._size(each)))));
    const since = first === this.history.info.oldest_tick ? "since it began" : `in the last ${many(to - first + 1, "tick")}`;
    this.say(now.length ? now : [], "", found.length ? `${many(found.length, "report")} ${since}.` : `No report ${since}.`, silence(this.query, exhausted), isAlarm ? "" : threshold(this.query, now));
    this.keep(`Reports of ${title(this.name)}`, [...found].reverse(), this.columnsOf(found));
    return true;
  }

  async _reports(first, to) {
    const found = await this.history.totals(this.name, this.view.span);
    return found.filter((each) => each.tick >= first && each.tick <= to).flatMap(({ tick, rows }) => rows.map((row) => ({ tick, ...row })));
  }

  _name(report) {
    return this.labels.length ? this.labelOf(report) : title(this.name);
  }

  /** How many were in a report. */
  _size(report) {
    const { text, bar, isNoise } = display(report, { never_below_zero: true });
    return isNoise ? text : `about ${text} (${bar})`;
  }

  _timeLine(found, first, last, isAlarm) {
    if (!this._box) {
      this._box = h("div", { class: "chart-box" });
      this._list = h("ol", { class: "reports", "aria-label": "Latest reports" });
      put(this.body, this._box, this._list);
      new ResizeObserver(() => this._redraw?.()).observe(this._box);
    }
    const names = new Map();
    for (const each of found) {
      const name = isAlarm ? title(this.name) : this._name(each);
      if (!names.has(name)) names.set(name, []);
      names.get(name).push(each);
    }
    if (isAlarm && !names.size) names.set(title(this.name), []);
    const most = [...names].sort((a, b) => b[1].at(-1)?.tick - a[1].at(-1)?.tick || b[1].length - a[1].length).slice(0, LISTED);
    const rows = most.map(([name, reports]) => ({ name, reports }));
    this._redraw = () => {
      const width = this._box.clientWidth;
      const label = `Reports of ${title(this.name)} over time: ${rows.map((row) => `${row.name} ${many(row.reports.length, "time")}`).join(", ") || "none"}`;
      if (width > 60 && rows.length) put(this._box, timeLine({ rows, first, last, when: (...given) => this.history.when(...given), width, label }));
      else put(this._box);
    };
    this._redraw();
  }
}

/** The rows of a query over time, and those of now: windows or totals. */
async function seriesOf(card, isMany = false, most = card.view.span) {
  const { history, name } = card;
  if (card.isRecent) {
    const from = Math.max(history.begin, card.last - card.length);
    const [all, last] = await Promise.all([history.windows(name, card.length, Math.min(240, Math.max(1, Math.floor(most / card.length)))), history.recent(card.length, card.last)]);
    const now = last?.releases[name] ?? [];
    const series = all.filter((each) => each.rows.length);
    // Fewer ticks than one window: what there is.
    if (!series.length && now.length) series.push({ tick: card.last, rows: now });
    return isMany ? { series: { all: series, now }, from } : { series, now: now[0], from };
  }
  const all = (await history.totals(name, most)).filter((each) => each.rows.length);
  const now = all.at(-1)?.rows ?? [];
  return isMany ? { series: { all, now }, from: null } : { series: all, now: now[0], from: null };
}

/** Which time the large number is of. */
function timeOf(card, from) {
  const { history, query } = card;
  if (from !== null) return `${firstSeen(query) && `${firstSeen(query)}in `}${history.whole(card.last, from)}`;
  if (query.per) return history.whole(card.last, Math.max(0, card.last - query.per));
  return `so far, up to ${history.until(card.last)}`;
}

function told(card, point, tick, digits) {
  if (!point) return "";
  const when = card.isRecent ? card.history.whole(tick, tick - card.length) : card.history.whole(tick);
  const truth = typeof point.truth === "number" ? `; truth of the generator ${shown(point.truth)}` : "";
  const { text, isNoise } = display(point.source, card.query, digits);
  return `${when}: ${isNoise ? `${text}; as it was released ` : ""}${released(point.source, digits)}${truth}`;
}

/** How many of some ordered numbers are at most a value. */
function after(ordered, value) {
  let [low, high] = [0, ordered.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ordered[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function rank(card, rows, isTop) {
  const isUnknown = (row) => card.isRecent && row.low === null && row.high === null;
  const digits = places(rows);
  const named = rows.map((row) => {
    const { estimate, low, high } = drawn(row, card.query);
    const told = display(row, card.query, digits);
    return { source: row, label: card.labelOf(row), ...told, estimate: told.isNoise ? null : estimate, low, high, rank: null, isRest: card.labelOf(row) === null };
  });
  const rest = named.filter((row) => row.isRest), others = named.filter((row) => !row.isRest && !row.isNoise && !isUnknown(row));
  // What cannot be told from noise has no order, nor have windows that nothing bounds: that of their names.
  const noise = named.filter((row) => !row.isRest && (row.isNoise || isUnknown(row))).sort((a, b) => (a.label < b.label ? -1 : 1));
  if (!isTop) others.sort((a, b) => (b.estimate ?? -Infinity) - (a.estimate ?? -Infinity) || (a.label < b.label ? -1 : 1));
  const all = [...others, ...noise];
  const lows = all.map((row) => row.low ?? -Infinity).sort((a, b) => a - b), highs = all.map((row) => row.high ?? Infinity).sort((a, b) => a - b);
  others.forEach((row, place) => {
    row.rank = place + 1;
    // Which ranks its bar allows, beside the bars of the others.
    row.best = 1 + all.length - after(lows, row.high ?? Infinity);
    row.worst = all.length - after(highs, (row.low ?? -Infinity) - 1e-9);
  });
  return [...others, ...noise, ...rest];
}

function quantileName(key) {
  const part = Number(key);
  if (Number.isNaN(part)) return key;
  return part === 0.5 ? "Median" : `${Number((100 * part).toPrecision(6))} % lie below`;
}

function quantileShort(key) {
  const part = Number(key);
  return Number.isNaN(part) ? key : `${Number((100 * part).toPrecision(6))} %`;
}

/** The card of a query. */
export function cardOf(history, name, view, options) {
  const query = history.query(name);
  const hasLabels = query.labels ?? ["histogram", "top_k", "heavy_hitters"].includes(query.kind);
  const kind = query.watched || ["alarm", "trending"].includes(query.kind) ? MonitorCard : query.kind === "quantiles" ? QuantileCard : hasLabels ? LabelCard : NumberCard;
  return new kind(history, name, view, options);
}
