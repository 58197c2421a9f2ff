/**
 * The server's clock as the page knows it. All times in answers are the server's; the browser's own clock may
 * be minutes off, so "12 s ago" and "41 min left" are computed with `serverNow`, never with `Date.now`.
 *
 * A sample bounds the skew between `server - received` and `server - sent`; the narrower the round trip the
 * better. A pushed event has no send time: it only says that the skew is at least `server - received`.
 */
interface Sample {
  skew: number;
  /** Half width of the interval in which the true skew lies. */
  doubt: number;
  at: number;
}

/** A sample grows old: clocks drift, laptops sleep. After this long any new one replaces it. */
const STALE_MS = 5 * 60_000;
/** A new sample this far from the old one means that a clock was set, whatever its round trip. */
const JUMP_MS = 2_000;
/** What a pushed event is taken to have spent on its way. */
const PUSH_DOUBT_MS = 1_000;

export class Clock {
  #best: Sample | null = null;

  /** Learn from an answer: `server` is its `now`, `sent` and `received` are this browser's clock. */
  observe(server: number, sent: number, received: number, resolution = 0): void {
    if (!Number.isFinite(server)) return;
    const half = Math.max(0, (received - sent) / 2);
    this.#take({ skew: server + resolution / 2 - (sent + received) / 2, doubt: half + resolution / 2, at: received });
  }

  /** Learn from a pushed event, which may have been on its way for any time. */
  observePush(server: number, received: number): void {
    if (!Number.isFinite(server)) return;
    const least = server - received;
    const best = this.#best;
    if (best && Math.abs(least - best.skew) <= JUMP_MS && received - best.at < STALE_MS) {
      if (least > best.skew) this.#best = { skew: least, doubt: best.doubt, at: received };
      return;
    }
    this.#take({ skew: least, doubt: PUSH_DOUBT_MS, at: received });
  }

  #take(sample: Sample): void {
    const best = this.#best;
    const replaces =
      !best ||
      sample.doubt <= best.doubt ||
      sample.at - best.at >= STALE_MS ||
      Math.abs(sample.skew - best.skew) > JUMP_MS + sample.doubt;
    if (replaces) this.#best = sample;
  }

  serverNow(browserNow: number = Date.now()): number {
    return browserNow + (this.#best?.skew ?? 0);
  }
}

export const clock = new Clock();
