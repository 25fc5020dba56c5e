// Rows with labels: any number of them, of which only those in view are elements.

import { rowBar } from "./charts.js";
import { fresh, h, put, say } from "./dom.js";
import { exact, released } from "./numbers.js";

const TALL = 38;
/** The height of a row in pixels, as in the style sheet. */

const SIGN = 7.6;
/** The width of a digit in pixels, and a little more. */

const MOST_IN_CARD = 10;
const MARGIN = 6;

/** A list of labels with bars, a box to search, and an order. */
export class LabelRows {
  constructor({ label, pick, isLarge }) {
    this._pick = pick;
    this._isLarge = isLarge;
    this._rows = [];
    this._find = "";
    this._order = "estimate";
    this._picked = null;
    const box = fresh("find");
    this.search = h("input", { type: "search", id: box, placeholder: "Search labels", autocomplete: "off", spellcheck: "false", oninput: () => { this._find = this.search.value; this._arrange(); } });
    this.order = h("select", { "aria-label": "Order of labels", onchange: () => { this._order = this.order.value; this._arrange(); } },
      h("option", { value: "estimate" }, "largest first"), h("option", { value: "label" }, "by name"));
    this.tools = h("div", { class: "row-tools" }, h("label", { for: box, class: "unseen" }, "Search labels"), this.search, this.order);
    this.body = h("div", { role: "presentation", class: "rows-body" });
    const head = ["", "Label", "", "Estimate", "Interval"].map((text, place) => h("span", { role: "columnheader", class: `cell k${place}` }, text || h("span", { class: "unseen" }, place ? "Bar" : "Rank")));
    this.scroll = h("div", { role: "rowgroup", class: "rows-scroll", "aria-label": "Labels" }, this.body);
    this.table = h("div", { role: "table", class: "rows", "aria-label": label },
      h("div", { role: "rowgroup" }, h("div", { role: "row", class: "rows-head", "aria-rowindex": 1 }, ...head)), this.scroll);
    this.note = h("p", { class: "quiet small", role: "status" });
    this.element = h("div", { class: "label-rows" }, this.tools, this.table, this.note);
    this._seen = new Map();
    this.scroll.addEventListener("scroll", () => this._draw(), { passive: true });
    new ResizeObserver(() => this._draw(true)).observe(this.scroll);
  }

  /** Show rows: {label, text, bar, estimate, low, high, rank, change, isRest, isNoise, source, truth}. */
  show(rows, label) {
    this.table.setAttribute("aria-label", label);
    this._rows = rows;
    const numbers = rows.filter((row) => !row.isRest);
    const highs = numbers.map((row) => row.high ?? row.estimate ?? 0), lows = numbers.map((row) => row.low ?? row.estimate ?? 0);
    const top = numbers.reduce((most, row) => Math.max(most, row.estimate ?? 0), 0);
    const high = highs.reduce((most, value) => Math.max(most, Math.min(value, top > 0 ? 1.6 * top : value)), 1e-9);
    const low = lows.reduce((least, value) => Math.min(least, Math.max(value, -high)), 0);
    this._range = [low, 1.01 * high];
    const widest = (text) => rows.reduce((most, row) => Math.max(most, text(row).length), 8);
    const estimate = Math.ceil(widest((row) => row.text) * SIGN * 1.12);
    // On narrow cards both stand above each other.
    this._wide = Math.max(Math.ceil(widest((row) => row.bar) * SIGN), this.table.clientWidth <= 480 ? estimate : 0);
    this.table.style.setProperty("--estimate", `${estimate}px`);
    this.table.style.setProperty("--interval", `${this._wide}px`);
    this.tools.hidden = rows.length <= MOST_IN_CARD && !this._find;
    this._arrange();
  }

  pick(label) {
    this._picked = label;
    this._draw(true);
  }

  _arrange() {
    const find = this._find.trim().toLocaleLowerCase();
    const found = find ? this._rows.filter((row) => !row.isRest && row.label.toLocaleLowerCase().includes(find)) : this._rows;
    this._shown = this._order === "label" ? [...found].sort((a, b) => Number(a.isRest) - Number(b.isRest) || (a.label < b.label ? -1 : 1)) : found;
    const tall = this._shown.length * TALL;
    this.body.style.setProperty("height", `${tall}px`);
    const isLong = this._shown.length > MOST_IN_CARD;
    this.scroll.style.setProperty("max-height", this._isLarge ? "min(64vh, 46rem)" : `${MOST_IN_CARD * TALL}px`);
    if (isLong) this.scroll.setAttribute("tabindex", "0");
    else this.scroll.removeAttribute("tabindex");
    this.table.setAttribute("aria-rowcount", this._shown.length + 1);
    say(this.note, find ? `${found.length.toLocaleString("en-US")} of ${this._rows.length.toLocaleString("en-US")} labels hold “${this._find.trim()}”` : this._rows.length > MOST_IN_CARD ? `${this._rows.filter((row) => !row.isRest).length.toLocaleString("en-US")} labels are shown` : "");
    this._draw(true);
  }

  _draw(isAnew = false) {
    if (!this._shown) return;
    const height = this.scroll.clientHeight || MOST_IN_CARD * TALL;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / TALL) - MARGIN);
    const last = Math.min(this._shown.length, Math.ceil((this.scroll.scrollTop + height) / TALL) + MARGIN);
    const width = this._bar();
    const focused = document.activeElement?.dataset?.label;
    const hadFocus = this.body.contains(document.activeElement);
    if (isAnew) this._seen.clear();
    const wanted = new Map();
    for (let place = first; place < last; place += 1) wanted.set(place, this._seen.get(place) ?? this._row(this._shown[place], place, width));
    if (isAnew || [...wanted.keys()].some((place) => !this._seen.has(place)) || wanted.size !== this._seen.size) {
      this._seen = wanted;
      put(this.body, ...wanted.values());
      if (hadFocus && focused !== undefined) [...this.body.querySelectorAll("button")].find((each) => each.dataset.label === focused)?.focus({ preventScroll: true });
    }
  }

  _bar() {
    const all = this.table.clientWidth;
    if (all <= 480) return Math.max(40, all - this._wide - 66);
    return Math.floor(all * (all >= 640 ? 0.42 : 0.3));
  }

  _row(row, place, width) {
    const name = row.isRest
      ? h("span", { class: "rest" }, "All others together")
      : h("button", { type: "button", class: "label", title: row.label, "aria-pressed": String(row.label === this._picked), "data-label": row.label, onclick: () => this._pick(row.label) }, row.label);
    const bar = row.isRest ? null : rowBar(row, this._range, width, 24);
    const node = h("div", { role: "row", class: `row${row.isRest ? " is-rest" : ""}`, "aria-rowindex": place + 2 },
      h("span", { role: "cell", class: "cell k0" }, row.rank === null ? "" : String(row.rank), change(row)),
      h("span", { role: "cell", class: "cell k1" }, name),
      h("span", { role: "cell", class: "cell k2" }, bar),
      h("span", { role: "cell", class: "cell k3 number", title: row.isNoise ? `As it was released: ${released(row.source)}` : exact(row.estimate) }, row.text),
      h("span", { role: "cell", class: "cell k4 number quiet" }, row.bar));
    node.style.setProperty("top", `${place * TALL}px`);
    return node;
  }
}

/** How a rank moved, for eyes and ears. */
function change(row) {
  if (row.isRest || row.change === undefined || row.change === 0) return null;
  const [mark, words] = row.change === null ? ["new", "new in the list"] : row.change > 0 ? [`▲${row.change}`, `up by ${row.change}`] : [`▼${-row.change}`, `down by ${-row.change}`];
  const shade = row.change === null ? "fresh" : !row.isSure ? "unsure" : row.change > 0 ? "up" : "down";
  const told = shade === "unsure" ? `${words}, which may be noise` : words;
  return h("span", { class: `change ${shade}`, title: told }, h("span", { "aria-hidden": "true" }, mark), h("span", { class: "unseen" }, told));
}

/** A plain table that shows a part of its rows, more on request; for each chart. */
export function numbersTable(caption, columns, rows, most = 50) {
  const body = h("tbody");
  let count = 0;
  const more = h("button", { type: "button", class: "plain", onclick: () => add() }, "Show more rows");
  const add = () => {
    const next = rows.slice(count, count + most);
    body.append(...next.map((row) => h("tr", {}, ...columns.map(({ name, is }, place) => (place === 0 ? h("th", { scope: "row" }, is(row)) : h("td", {}, is(row)))))));
    count += next.length;
    more.hidden = count >= rows.length;
  };
  add();
  const table = h("table", { class: "numbers" }, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, ...columns.map(({ name }) => h("th", { scope: "col" }, name)))), body);
  return h("div", {}, h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": caption }, table), more);
}
