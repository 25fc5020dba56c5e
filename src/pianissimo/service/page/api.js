// Asking the service: JSON, files, and releases as they are published.

const TOKEN = "pianissimo-token";
let held = null;
/** The token where a browser keeps nothing for the tab. */

const SILENCE = 40_000;
/** The service speaks at least every fifteen seconds; after so many milliseconds of silence the link is taken for dead. */

const FIRST_PAUSE = 500, LONGEST_PAUSE = 15_000;

/** What the service answered instead of what was asked for. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The token of this tab, if it has one. */
export function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return held;
  }
}

export function keepToken(text) {
  held = text;
  try {
    if (text) sessionStorage.setItem(TOKEN, text);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // It is held until the page is left.
  }
}

/** Take a token out of a fragment: it is kept for this tab, and gone from the address. */
export function takeToken() {
  const found = /([#?&])token=([^&]+)&?/.exec(location.hash);
  if (!found) return;
  keepToken(decodeURIComponent(found[2]));
  const rest = location.hash.replace(found[0], found[1]).replace(/[?&#]$/, "");
  history.replaceState(null, "", location.pathname + location.search + rest);
}

function headers(more = {}) {
  const own = token();
  return own ? { ...more, Authorization: `Bearer ${own}` } : more;
}

function address(path) {
  return new URL(path, document.baseURI).href;
}

async function answer(path, more) {
  let response;
  try {
    response = await fetch(address(path), { headers: headers(more), credentials: "omit" });
  } catch {
    throw new Refusal(0, "the service cannot be reached");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  throw new Refusal(response.status, told?.error?.message ?? `the service answered ${response.status}`);
}

/** JSON at a path such as "v1/streams". */
export async function ask(path) {
  return (await answer(path)).json();
}

/** A file of the service, and the path of its next part if it has one. */
export async function file(path) {
  const response = await answer(path);
  const following = /<([^>]+)>; rel="next"/.exec(response.headers.get("Link") ?? "");
  return { content: await response.blob(), next: following ? following[1].replace(/^\//, "") : null };
}

/** The path of a stream. */
export function of(stream, rest = "") {
  return `v1/streams/${encodeURIComponent(stream)}${rest}`;
}

/** A path with its query. */
export function query(path, values) {
  const told = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return told.length ? `${path}?${new URLSearchParams(told)}` : path;
}

/** Follows a stream: each release once, in order, through breaks of the link and of the service. */
export class Following {
  constructor(stream, after, { take, tell }) {
    this._stream = stream;
    this._after = after;
    this._take = take;
    this._tell = tell;
    this._pause = FIRST_PAUSE;
    this._ended = false;
    this._run();
  }

  end() {
    this._ended = true;
    this._abort?.abort();
    clearTimeout(this._waiting);
  }

  /** Connect at once, without waiting for the end of a pause. */
  hurry() {
    if (this._wake) this._wake();
  }

  async _run() {
    while (!this._ended) {
      this._tell({ state: "connecting" });
      try {
        await this._read();
      } catch (fault) {
        if (this._ended) return;
        if (fault instanceof Refusal && [401, 403, 404].includes(fault.status)) {
          this._tell({ state: "refused", fault });
          return;
        }
      }
      if (this._ended) return;
      this._tell({ state: "waiting", until: Date.now() + this._pause });
      await new Promise((resolve) => {
        this._wake = resolve;
        this._waiting = setTimeout(resolve, this._pause * (0.75 + 0.5 * Math.random()));
      });
      this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
    }
  }

  async _read() {
    this._abort = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this._abort.abort(), SILENCE);
    };
    heard();
    try {
      const path = query(of(this._stream, "/releases"), { after: this._after });
      const response = await fetch(address(path), {
        headers: headers({ Accept: "text/event-stream", "Last-Event-ID": String(this._after) }),
        signal: this._abort.signal,
        credentials: "omit",
        cache: "no-store",
      });
      if (!response.ok) throw new Refusal(response.status, `the service answered ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      this._tell({ state: "live" });
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        heard();
        this._pause = FIRST_PAUSE;
        text += value;
        let end;
        while ((end = text.indexOf("\n\n")) >= 0) {
          this._event(text.slice(0, end));
          text = text.slice(end + 2);
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  _event(block) {
    const data = [];
    let kind = "message";
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) kind = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
    }
    if (kind !== "release" || !data.length) return;
    const release = JSON.parse(data.join("\n"));
    // A release that was seen is not shown twice, also if the service sends it again.
    if (release.tick <= this._after) return;
    this._after = release.tick;
    this._take(release);
  }
}
