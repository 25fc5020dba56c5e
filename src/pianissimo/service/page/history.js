// What the page knows of a stream: its plan, what was published, and windows of it.

import { ask, Following, of, query } from "./api.js";
import { seconds, Times } from "./numbers.js";

const PAGE = 1000;
/** As many ticks as one answer of the service holds. */

const MOST_WINDOWS = 240;

/** As many rows of a query are kept of earlier ticks: enough for the longest chart of numbers. */
const MOST_ROWS = 200_000;

const DAY = 86_400_000;

/** Forget the oldest ticks of a map from ticks to rows beyond what is kept. */
function trim(kept) {
  const rows = Math.max(1, [...kept.values()].at(-1)?.length ?? 1);
  for (const tick of kept.keys()) {
    if (kept.size * rows <= MOST_ROWS && kept.size <= 4096) return;
    kept.delete(tick);
  }
}

/** The table that says how many users are above the cap: of no query, beside all that share it. */
export const ABOVE_CAP = "above_cap";

/** The names of the columns that hold labels. */
export function labelColumns(columns) {
  return Object.entries(columns ?? {}).filter(([name, kind]) => kind === "String" && name !== "query").map(([name]) => name);
}

/** A label as one text; null for the row of all that is not shown. */
export function labelOf(row, names) {
  if (names.length === 1) return row[names[0]];
  const parts = names.map((name) => row[name]);
  return parts.every((part) => part === null) ? null : parts.map((part) => part ?? "–").join(" · ");
}

/** One stream as far as it was published. */
export class StreamHistory {
  constructor(name) {
    this.name = name;
    this.info = null;
    this.plan = null;
    this.last = null;
    /** The last release. */

    this.link = { state: "connecting" };
    this._least = 0;
    this._releases = new Map();
    this._memo = new Map();
    this._listeners = new Set();
  }

  async load() {
    [this.info, this.plan] = await Promise.all([ask(of(this.name)), ask(of(this.name, "/plan"))]);
    this._skew = 0;
    this.times = this.info.origin ? new Times(this.info.time_zone, seconds(this.info.tick_length)) : null;
    if (this.info.tick) this._keep(await ask(of(this.name, `/releases/${this.info.tick}`)));
    this._following = new Following(this.name, this.info.tick, {
      take: (release) => this._taken(release),
      tell: (link) => { this.link = link; this._emit("link"); },
    });
  }

  close() {
    this._following?.end();
    this._listeners.clear();
  }

  hurry() {
    this._following?.hurry();
  }

  /** Call a function with "release" or "link" when there is something new. */
  listen(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  get tick() {
    return this.last?.tick ?? 0;
  }

  /** The tick after which windows may begin: before the first, or the oldest that is kept of a longer life. */
  get begin() {
    const { first_tick: first, oldest_tick: oldest } = this.info;
    return Math.max(this._least, oldest > first ? oldest : first - 1);
  }

  /** Of the plan, with what the service adds. */
  query(name) {
    if (name === ABOVE_CAP) return { name, kind: ABOVE_CAP, called: "How many users have more than the cap lets through", never_below_zero: true, error_about: "number of users above the cap", no_windows: "one number a tick", threshold: null };
    const planned = this.plan.queries.find((each) => each.name === name);
    return { ...planned, ...this.info.queries.find((each) => each.name === name), threshold: planned?.threshold ?? null };
  }

  /** The columns of a table, with their types. */
  columns(name) {
    return this.last?.columns?.[name] ?? {};
  }

  /** When a tick is over, on an axis of so many ticks: with the day where these are more than a day. */
  when(tick, shown = 0) {
    const moment = this._lastOf(tick);
    return moment === null ? String(tick) : this.times.short(moment, moment - this._end(tick - shown) > DAY);
  }

  /** A tick with its time, for a sentence. */
  whole(tick, from = tick - 1) {
    const [start, end] = [this._end(from), this._end(tick)];
    const ticks = from === tick - 1 ? `tick ${tick.toLocaleString("en-US")}` : `ticks ${(from + 1).toLocaleString("en-US")} to ${tick.toLocaleString("en-US")}`;
    return end === null || start === null ? ticks : `${ticks}, ${this.times.span(start, end)}`;
  }

  /** The end of a tick, for a sentence. */
  until(tick) {
    const end = this._lastOf(tick);
    return end === null ? `tick ${tick.toLocaleString("en-US")}` : this.times.full(end);
  }

  /** The end of a tick; of ticks of days the last moment before it, as the end lies in the next day. */
  _lastOf(tick) {
    const end = this._end(tick);
    return end !== null && this.times.isDays ? end - 1 : end;
  }

  _end(tick) {
    const known = this._releases.get(tick);
    if (known?.end) return Date.parse(known.end);
    const last = this.last;
    if (!this.times || !last?.end) return null;
    // Ticks of even length; those of a calendar are known once their release is.
    return Date.parse(last.end) - (last.tick - tick) * (Date.parse(last.end) - Date.parse(last.start));
  }

  /** Totals of one query over the last ticks, oldest first: [{tick, rows}]. */
  async totals(name, ticks) {
    const from = Math.max(this.info.oldest_tick, this.tick - ticks + 1);
    const found = await this._series(`total ${name}`, from, this.tick, async (first, last) => {
      const rows = new Map();
      for (let next = first; next !== null && next <= last;) {
        const page = await ask(query(of(this.name, "/releases"), { from: next, to: Math.min(last, next + PAGE - 1), query: name }));
        for (const row of page.rows) {
          if (!rows.has(row.tick)) rows.set(row.tick, []);
          rows.get(row.tick).push(row);
        }
        next = page.next ?? (next + PAGE <= last ? next + PAGE : null);
      }
      return rows;
    });
    return found;
  }

  /** What windows of some ticks added, one after the other, the last full one last: [{tick, rows}]. */
  async windows(name, length, number) {
    // Windows are counted from the first tick of the stream, so that they stay where they are.
    const first = this.info.first_tick - 1;
    const aligned = (tick) => first + Math.floor((tick - first) / length) * length;
    const last = aligned(this.tick);
    const from = Math.max(aligned(this.begin + length - 1), last - Math.min(number, MOST_WINDOWS) * length);
    if (last <= from) return [];
    const kept = this._map(`window ${length} ${name}`);
    let missing = from;
    while (missing < last && kept.has(missing + length)) missing += length;
    if (missing < last) {
      const answer = await this._someWindows(name, missing, last, length);
      for (const each of answer.windows) kept.set(each.to, each.releases[name] ?? []);
      trim(kept);
    }
    const found = [];
    for (let tick = from + length; tick <= last; tick += length) if (kept.has(tick)) found.push({ tick, rows: kept.get(tick) });
    return found;
  }

  /** Windows up to a tick: fewer where the first of them begin in what is not kept any more. */
  async _someWindows(name, from, to, length) {
    for (let begin = from; ;) {
      try {
        const found = await this._pages(begin, to, length, name);
        if (begin > from) this._least = Math.max(this._least, begin);
        return found;
      } catch (fault) {
        const left = (to - begin) / length;
        if (fault.status !== 404 || left < 2) throw fault;
        begin = to - Math.floor(left / 2) * length;
      }
    }
  }

  /** Windows of one query, page after page. */
  async _pages(from, to, length, name) {
    const windows = [];
    for (let begin = from; begin !== null;) {
      const page = await ask(query(of(this.name, "/windows"), { from: begin, to, step: length, query: name }));
      windows.push(...page.windows);
      begin = page.next;
    }
    return { windows };
  }

  /** What the last ticks added, all queries in one answer: {from, to, releases}. */
  async recent(length, to = this.tick) {
    const from = Math.max(this.begin, to - length);
    if (to <= from) return null;
    const key = `recent ${from} ${to}`;
    if (!this._memo.has(key)) {
      const asked = ask(query(of(this.name, "/windows"), { from, to })).then((answer) => answer.windows[0]);
      this._memo.set(key, asked);
      asked.catch(() => this._memo.delete(key));
      for (const old of [...this._memo.keys()].filter((each) => each.startsWith("recent ")).slice(0, -16)) this._memo.delete(old);
    }
    return this._memo.get(key);
  }

  /** One release, as it is stored. */
  async release(tick) {
    if (!this._releases.has(tick)) this._keep(await ask(of(this.name, `/releases/${tick}`)));
    return this._releases.get(tick);
  }

  async reports(from, to) {
    const found = [];
    for (let next = from; next !== null && next <= to;) {
      const page = await ask(query(of(this.name, "/alarms"), { from: next, to }));
      found.push(...page.alarms);
      next = page.next;
    }
    return found;
  }

  async _series(key, from, to, fetch) {
    const kept = this._map(key), isThere = this._map(`${key} asked`);
    let first = from, last = to;
    while (first <= to && isThere.has(first)) first += 1;
    while (last >= first && isThere.has(last)) last -= 1;
    if (first <= last) {
      const rows = await fetch(first, last);
      for (let tick = first; tick <= last; tick += 1) isThere.set(tick, true);
      for (const [tick, each] of rows) kept.set(tick, each);
    }
    const found = [];
    for (let tick = from; tick <= to; tick += 1) if (kept.has(tick)) found.push({ tick, rows: kept.get(tick) });
    return found;
  }

  _map(key) {
    if (!this._memo.has(key)) this._memo.set(key, new Map());
    return this._memo.get(key);
  }

  _keep(release) {
    this._releases.set(release.tick, release);
    if (release.tick > this.tick) this.last = release;
    // A few are kept whole, for comparing ranks; series are kept by query.
    for (const old of [...this._releases.keys()].sort((a, b) => a - b).slice(0, -32)) this._releases.delete(old);
  }

  _taken(release) {
    /** Whether it is the first that this page sees. */
    this.isFirst = this.last === null;
    this._keep(release);
    for (const [name, rows] of Object.entries(release.releases)) {
      const isThere = this._map(`total ${name} asked`);
      if (isThere.has(release.tick - 1)) {
        isThere.set(release.tick, true);
        const kept = this._map(`total ${name}`);
        kept.set(release.tick, rows);
        trim(kept);
        for (const tick of isThere.keys()) if (kept.size && !kept.has(tick) && tick < kept.keys().next().value) isThere.delete(tick);
      }
    }
    this._emit("release");
    if (this._asking) return;
    // What is not in a release, such as the next publication.
    this._asking = ask(of(this.name)).then((info) => { this.info = info; this._emit("link"); }, () => {}).finally(() => { this._asking = null; });
  }

  _emit(kind) {
    for (const listener of [...this._listeners]) listener(kind);
  }
}
