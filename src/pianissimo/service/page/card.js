// What every card has: a title, a switch between recent windows and the running total, what its bars mean, its table, downloads.

import { file, of, query as asked } from "./api.js";
import { choice, fresh, h, put, say } from "./dom.js";
import { clearness, exact, many, title } from "./numbers.js";
import { ABOVE_CAP, labelColumns, labelOf } from "./history.js";
import { numbersTable } from "./rows.js";
import { called, capped, meaning, whyLength } from "./words.js";

/** Lengths of windows to choose from, in ticks. */
export const WINDOWS = [1, 6, 24, 168];

export const CLEAR = 3;
/** From how many halves of its bar on a number stands out of its noise. */

const AGAIN = 6;
/** After how many ticks windows are tried again where none stood out. */

/** Save a text or a blob as a file of the reader's. */
export function save(name, content, kind = "text/plain") {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Rows as CSV: fields with commas, quotes or line breaks are quoted. */
export function csv(columns, rows) {
  const field = (value) => {
    if (value === null || value === undefined) return "";
    const text = String(value);
    // A label that a spreadsheet would take for a formula is kept a text.
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns.join(","), ...rows.map((row) => columns.map((column) => field(row[column])).join(","))].join("\r\n") + "\r\n";
}

/** A card of one query. Kinds draw what is theirs in `draw`. */
export class Card {
  constructor(history, name, view, { isLarge = false, isAlone = false } = {}) {
    this.history = history;
    this.name = name;
    this.view = view;
    this.isLarge = isLarge;
    this.query = history.query(name);
    this.labels = [];
    /** How long windows are where the reader leaves it to the card: null for none, undefined before any was tried. */
    this._chosen = undefined;
    /** The longest that was tried and does not stand out. */
    this._tried = 0;
    this._build(isLarge, isAlone);
  }

  _build(isLarge, isAlone) {
    const id = fresh("card");
    const text = title(this.name);
    const level = isLarge || isAlone ? "h1" : "h2";
    const link = this.view.link({ page: "card", card: this.name });
    const heading = h(level, { id, title: this.name }, isLarge || isAlone ? text : h("a", { href: link }, text));
    this.switch = h("div", { class: "switch" });
    this.figure = h("div", { class: "figure" });
    this.body = h("div", { class: "card-body" });
    this.words = h("div", { class: "meaning" });
    this.table = h("details", { class: "data" }, h("summary", {}, "Numbers behind this picture"));
    this.table.addEventListener("toggle", () => this._drawTable());
    put(this.figure, h("p", { class: "quiet empty" }, "Asking for the numbers …"));
    this.body.hidden = true;
    this.element = h("article", { class: `card kind-${this.query.kind}${isLarge ? " large" : ""}`, "aria-labelledby": id, "data-card": this.name },
      h("div", { class: "card-head" }, h("div", {}, heading, h("p", { class: "quiet kind" }, called(this.query))), this.switch),
      this.figure, this.body, this.words, h("div", { class: "card-foot" }, this.table, isAlone ? null : this._menu()));
  }

  _menu() {
    const alone = new URL(location.pathname, location.href);
    alone.search = new URLSearchParams({ stream: this.history.name, card: this.name }).toString();
    const item = (text, act) => h("li", {}, h("button", { type: "button", class: "plain", onclick: act }, text));
    return h("details", { class: "menu" }, h("summary", {}, "Download and share"),
      h("ul", {},
        item("What is shown, as CSV", () => this._save("csv")),
        item("What is shown, as JSON", () => this._save("json")),
        item("All ticks, as CSV", () => this._saveAll()),
        h("li", {}, h("a", { href: this.view.link({ page: "card", card: this.name }) }, "Link to this card")),
        h("li", {}, h("a", { href: alone.href }, "This card alone, to embed"))));
  }

  /** Whether windows are shown, or all that came so far. */
  get isRecent() {
    const chosen = this.view.mode(this.name);
    return this.canBeRecent && chosen !== "total" && (chosen === "recent" || this.view.window > 0 || this._chosen !== null);
  }

  get canBeRecent() {
    return !this.query.no_windows && !this.query.watched && !this.query.per;
  }

  /** How long a window is: as the reader chose, or as is needed, in whole steps of a query that is published seldom. */
  get length() {
    return this._steps(this.view.window || this._chosen || this._tried || 1);
  }

  _steps(ticks) {
    const every = this.query.every ?? 1;
    return Math.ceil(ticks / every) * every;
  }

  /** Whether what a window holds stands out of its noise: every kind its own way. */
  async isClear(rows) {
    return rows.length > 0 && clearness(rows[0], this.query) >= CLEAR;
  }

  /** Find the shortest windows whose last one stands out; it is a function of what was released, and costs nothing. */
  async _choose() {
    if (!this.canBeRecent || this.view.window || this.view.mode(this.name) === "total" || !this.history.tick) return;
    const current = this._chosen, isAnew = current === undefined || this.last % (current ?? AGAIN) === 0;
    if (!isAnew && current === null) return;
    const begin = isAnew ? 0 : current;
    this._tried = isAnew ? 0 : this._tried;
    for (const length of new Set(WINDOWS.map((each) => this._steps(each)))) {
      if (length < begin || length > this.last - this.history.begin) continue;
      // Where its first tick is not kept any more there is no such window.
      const found = await this.history.recent(length, this.last).catch((fault) => { if (fault.status !== 404) throw fault; return null; });
      if (!found) break;
      if (await this.isClear(found.releases[this.name] ?? [])) { this._chosen = length; return; }
      this._tried = length;
    }
    this._chosen = null;
  }

  /** The last tick at which the query was published. */
  get last() {
    return this.history.tick - (this.history.tick % (this.query.every ?? 1));
  }

  /** Draw what is published, and say whether there is something: every kind its own way. */
  async draw() {
    return false;
  }

  /** Draw anew; once more afterwards if something came meanwhile. */
  async refresh() {
    if (this._drawing) { this._again = true; return; }
    this._drawing = true;
    try {
      do {
        this._again = false;
        this.labels = labelColumns(this.history.columns(this.name));
        await this._choose();
        this._drawSwitch();
        if (!this.history.tick) this._nothing("Nothing has been published yet.");
        else if (await this.draw()) this.body.hidden = false;
        else this._nothing("It was not published at a tick yet.");
        this.element.classList.remove("failed");
      } while (this._again);
    } catch (fault) {
      this.element.classList.add("failed");
      put(this.words, h("p", { class: "fault" }, `This card could not be brought up to date: ${fault.message}.`));
    } finally {
      this._drawing = false;
    }
  }

  _nothing(text) {
    this._head = null;
    this.body.hidden = true;
    put(this.figure, h("p", { class: "quiet empty" }, text));
  }

  _drawSwitch() {
    const length = this.length;
    if (this.canBeRecent) {
      const recent = length === 1 ? "Each tick" : `Last ${length}`;
      const told = `${this.isRecent} ${recent}`;
      if (this._told === told) return;
      this._told = told;
      put(this.switch, choice(`What ${title(this.name)} shows`, [["recent", recent], ["total", "So far"]], this.isRecent ? "recent" : "total", (value) => {
        this.view.setMode(this.name, value);
      }));
    } else if (this.query.per && this._told !== "per") {
      this._told = "per";
      put(this.switch, h("span", { class: "chip" }, `last ${many(this.query.per, "tick")}`));
    }
  }

  /** What bars mean, what a cap does, and what else is to be said. */
  say(rows, when, ...others) {
    const above = this.history.last.releases.above_cap?.[0];
    const shares = this.query.mechanism?.startsWith("UserStatistics") ? above : null;
    const texts = [rows.length ? meaning(this.query, this.history.plan.coverage, rows, when) : "", capped(this.query, rows, shares), ...others, this._whyNoWindows(), this._whyLength()].filter(Boolean);
    if (this._said === texts.join("\n")) return;
    this._said = texts.join("\n");
    put(this.words, ...texts.map((text) => h("p", {}, text)));
  }

  _whyNoWindows() {
    if (!this.query.no_windows || this.query.watched || this.query.per || this.query.kind === ABOVE_CAP) return "";
    return `Only what came so far is shown: ${this.query.no_windows.split(";")[0]}.`;
  }

  _whyLength() {
    if (!this.canBeRecent || this.view.window || this.view.mode(this.name) || this._chosen === undefined) return "";
    return whyLength(this._chosen, this._tried);
  }

  /** Keep what the table and downloads show: rows with tick, label where there is one, estimate, low, high, cap. */
  keep(caption, rows, columns) {
    this._table = { caption, rows, columns };
    if (this.table.open) this._drawTable();
  }

  _drawTable() {
    if (!this.table.open || !this._table) return;
    const { caption, rows, columns } = this._table;
    const shown = columns.map((name) => ({
      name: { from: "after tick", tick: "tick", end: "until" }[name] ?? name,
      is: (row) => (name === "high" && row[name] === null ? "or more" : name === "low" && row[name] === null ? "or less" : name === "tick" || name === "from" ? String(row[name]) : typeof row[name] === "number" ? exact(row[name]) : row[name] ?? "all that is not shown"),
    }));
    const held = this.table.querySelector(".table-scroll");
    const at = held?.scrollTop ?? 0;
    put(this.table, this.table.firstElementChild, numbersTable(caption, shown, rows));
    const now = this.table.querySelector(".table-scroll");
    if (now) now.scrollTop = at;
  }

  /** The columns of rows as they are shown and saved. */
  columnsOf(rows) {
    const first = rows[0] ?? {};
    return ["from", "tick", ...this.labels, "estimate", "low", "high", "cap", "tidy"].filter((name) => name === "tick" || (name in first));
  }

  _save(form) {
    if (!this._table) return;
    const { rows, columns } = this._table;
    const name = `${this.history.name}-${this.name}-${this.history.tick}.${form}`;
    if (form === "csv") save(name, csv(columns, rows), "text/csv");
    else save(name, JSON.stringify({ stream: this.history.name, query: this.name, coverage: this.history.plan.coverage, rows: rows.map((row) => Object.fromEntries(columns.map((column) => [column, row[column] ?? null]))) }, null, 1), "application/json");
  }

  async _saveAll() {
    const parts = [];
    let path = asked(of(this.history.name, "/releases"), { to: this.history.tick, query: this.name, format: "csv" });
    while (path) {
      const { content, next } = await file(path);
      const text = await content.text();
      parts.push(parts.length ? text.slice(text.indexOf("\n") + 1) : text);
      path = next;
    }
    save(`${this.history.name}-${this.name}-all.csv`, parts.join(""), "text/csv");
  }

  /** The label of a row. */
  labelOf(row) {
    return labelOf(row, this.labels);
  }

  /** Set the large number of a card, its bar and its time. */
  head(text, bar, when, hint = "") {
    if (!this._head) {
      this._head = { text: h("p", { class: "big number" }), bar: h("p", { class: "interval number" }), when: h("p", { class: "quiet when" }) };
      put(this.figure, this._head.text, h("div", {}, this._head.bar, this._head.when));
    }
    say(this._head.text, text);
    this._head.text.title = hint;
    this._head.text.classList.toggle("words", /[a-z]/.test(text));
    say(this._head.bar, bar);
    say(this._head.when, when);
  }
}
