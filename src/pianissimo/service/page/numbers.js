// How numbers, times and promises are written.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const digits = new Map();

function rounded(places) {
  if (!digits.has(places)) digits.set(places, new Intl.NumberFormat("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }));
  return digits.get(places);
}

/** A number as it is shown: whole ones in full, others to as many places as their bar needs. */
export function shown(value, places = 0) {
  if (value === null || value === undefined) return "–";
  if (value === "or more" || value === "or less") return value;
  if (Math.abs(value) >= 1e5) places = 0;
  const text = Number.isInteger(value) && places === 0 ? whole.format(value) : rounded(places).format(value);
  return text.replace(/^-(?=[0.,]*$)/, "").replace("-", "−");
}

/** How many places after the point rows need: none for whole numbers, else two digits of the narrowest bar. */
export function places(rows) {
  const values = rows.flatMap((row) => [row.estimate, row.low, row.high]).filter((value) => typeof value === "number");
  if (values.every(Number.isInteger)) return 0;
  const widths = rows.map((row) => Math.abs((row.high ?? row.estimate) - (row.low ?? row.estimate))).filter((width) => width > 0);
  const least = Math.min(...(widths.length ? widths : values.map(Math.abs).filter((value) => value > 0)), 1e6);
  return Math.max(0, Math.min(6, 1 - Math.floor(Math.log10(least))));
}

/** A number with all its digits, for tables. */
export function exact(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  const text = Number.isInteger(value) ? whole.format(value) : new Intl.NumberFormat("en-US", { maximumFractionDigits: 20 }).format(value);
  return text.replace("-", "−");
}

/** The ends of a bar in words. */
export function interval(row, digitsAfter = 0) {
  const low = row.low, high = row.high;
  if (low === null && high === null) return "no bounds";
  if (high === null) return `${shown(low, digitsAfter)} or more`;
  if (low === null) return `${shown(high, digitsAfter)} or less`;
  return `${shown(low, digitsAfter)} to ${shown(high, digitsAfter)}`;
}

/** Whether a number that cannot be below zero may as well be zero: its interval holds zero, or lies below it. */
export function cannotBeTold(row) {
  return !(row.low === null && row.high === null) && (row.low === null || row.low <= 0);
}

/** How such a number is shown, as in the terminal: what is below zero is shown as zero would be. */
export function cutAtZero(row, digitsAfter = 0) {
  const high = row.high === null ? null : Math.max(0, row.high - Math.min(0, row.estimate ?? 0));
  return { estimate: high === null ? "0 or more" : high ? `at most ${shown(high, digitsAfter)}` : "about 0", low: 0, high };
}

/** A number of a query for the eye: its text, its interval, and whether it cannot be told from noise. */
export function display(row, query, digitsAfter = 0) {
  if (query.never_below_zero && cannotBeTold(row)) {
    const cut = cutAtZero(row, digitsAfter);
    return { text: cut.estimate, bar: cut.high === 0 ? "0" : interval(cut, digitsAfter), isNoise: true };
  }
  const isMean = query.kind === "mean" && query.range;
  return { text: isMean ? meanText(row, query.range, digitsAfter) : row.estimate === null ? "not known" : shown(row.estimate, digitsAfter), bar: interval(row, digitsAfter), isNoise: false };
}

const NEARLY_ALL = 0.9;

/** A mean for the eye: a bound where noise took it to an end of its range, and no number of nearly all of it. */
export function meanText({ estimate, low, high }, range, digitsAfter = 0) {
  if (estimate === null || high - low >= NEARLY_ALL * (range[1] - range[0])) return "not known";
  if (estimate <= range[0] && high > range[0]) return `at most ${shown(high, digitsAfter)}`;
  return estimate >= range[1] && low < range[1] ? `at least ${shown(low, digitsAfter)}` : shown(estimate, digitsAfter);
}

/** A quantile for the eye: extremes as the bounds that they are, and no number where nearly all of the range may be it. */
export function quantileText(row, key, range, digitsAfter = 0) {
  const { low, high } = row;
  if (range && low !== null && high !== null && high - low >= NEARLY_ALL * (range[1] - range[0])) return "not known";
  if (key.startsWith("largest ") && low !== null) return `at least ${shown(low, digitsAfter)}`;
  if (key.startsWith("smallest ") && high !== null) return `at most ${shown(high, digitsAfter)}`;
  return shown(row.estimate, digitsAfter);
}

/** The same for a picture: of what cannot be told from noise there is an interval and no point in it. */
export function drawn(row, query) {
  if (!query.never_below_zero || !cannotBeTold(row)) return row;
  // An open bar is drawn as far above its number as it reaches below.
  return { ...row, ...cutAtZero(row), estimate: row.high === null ? Math.max(0, row.estimate) : null };
}

/** A number as it was released. */
export function released(row, digitsAfter = 0) {
  return `${row.estimate === null ? "not known" : shown(row.estimate, digitsAfter)} (${interval(row, digitsAfter)})`;
}

/** How far a number stands out of its noise: in halves of its bar; nothing where nothing bounds it. */
export function clearness(row, query) {
  if (row.estimate === null || (row.low === null && row.high === null)) return 0;
  const half = row.low === null ? row.high - row.estimate : row.estimate - row.low;
  return (query.never_below_zero ? row.estimate : Math.abs(row.estimate)) / Math.max(half, 1e-12);
}

/** Short numbers for axes. */
export function axis(value) {
  const size = Math.abs(value);
  const short = (by, unit) => `${Number((value / by).toPrecision(3))}${unit}`.replace("-", "−");
  if (size >= 1e9) return short(1e9, " bn");
  if (size >= 1e6) return short(1e6, " m");
  if (size >= 1e4) return short(1e3, " k");
  return (Number.isInteger(value) ? whole.format(value) : String(Number(value.toPrecision(3)))).replace("-", "−");
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** A small number as a power of ten. */
export function power(value) {
  if (value === 0) return "0";
  if (value >= 0.001) return String(Number(value.toPrecision(3)));
  const [digit, exponent] = value.toExponential(1).split("e");
  const raised = [...String(Number(exponent))].map((each) => RAISED[each]).join("");
  return Number(digit) === 1 ? `10${raised}` : `${Number(digit)} × 10${raised}`;
}

/** A share as a percentage. */
export function percent(share) {
  return `${Number((100 * share).toPrecision(4))} %`;
}

/** A query's name as a title. */
export function title(name) {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A number of things. */
export function many(number, one, several = `${one}s`) {
  return `${whole.format(number)} ${number === 1 ? one : several}`;
}

/** Writes moments by the clocks of a stream's zone, as fine as its ticks are long. */
export class Times {
  constructor(zone, seconds) {
    const parts = { timeZone: zone || "UTC" };
    const clock = seconds < 60 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
    this.zone = zone || "UTC";
    this.isDays = seconds >= 86400;
    this._clock = new Intl.DateTimeFormat("en-GB", { ...parts, ...clock, hourCycle: "h23" });
    this._day = new Intl.DateTimeFormat("en-GB", { ...parts, day: "numeric", month: "short" });
    this._full = new Intl.DateTimeFormat("en-GB", { ...parts, day: "numeric", month: "short", year: "numeric" });
  }

  /** The day, the time, or both if it is not midnight. */
  short(moment, withDay = false) {
    const date = new Date(moment);
    if (this.isDays) return this._day.format(date);
    const clock = this._clock.format(date);
    if (/^00:00(:00)?$/.test(clock)) return this._day.format(date);
    return withDay ? `${this._day.format(date)} ${clock}` : clock;
  }

  full(moment) {
    const date = new Date(moment);
    return this.isDays ? this._full.format(date) : `${this._full.format(date)}, ${this._clock.format(date)}`;
  }

  /** From when to when, the day once. */
  span(start, end) {
    const [first, last] = [new Date(start), new Date(end)];
    const [a, b] = [this._full.format(first), this._full.format(this.isDays ? last - 1 : last)];
    if (this.isDays) return a === b ? a : `${a} – ${b}`;
    return a === b ? `${a}, ${this._clock.format(first)} – ${this._clock.format(last)}` : `${this.full(first)} – ${this.full(last)}`;
  }
}

/** How long until something, in words. */
export function span(seconds) {
  const size = Math.abs(seconds);
  if (size < 90) return many(Math.round(size), "second");
  if (size < 5400) return many(Math.round(size / 60), "minute");
  if (size < 172800) return many(Math.round(size / 3600), "hour");
  return many(Math.round(size / 86400), "day");
}

const UNITS = { us: 1e-6, ms: 1e-3, s: 1, m: 60, min: 60, h: 3600, d: 86400, w: 604800 };

/** The length of a tick of a plan in seconds: "1h", "15m", "1mo" are what it may say. */
export function seconds(tick) {
  const found = /^([0-9.]+) *([a-z]+)$/.exec(tick ?? "");
  if (!found) return 3600;
  return Number(found[1]) * (UNITS[found[2]] ?? UNITS[found[2].charAt(0)] ?? 2592000);
}
