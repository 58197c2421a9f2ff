/**
 * The page's end of the console: a WebSocket that is dialled again by itself and never loses bytes silently.
 * No DOM and no xterm in here; the terminal hands in a sink, tests hand in a fake WebSocket.
 *
 *   connecting --hello--> open --close--> waiting --backoff--> connecting …
 *        `--refused for good--> refused          `--4000--> over
 *
 * - Binary frames are bytes of the serial line. `hello` names the epoch and the offset of the next byte; the
 *   client counts on from there and dials again with `epoch` and `offset`, so the server sends exactly what is
 *   missing, or a `gap` that the page shows.
 * - Bytes wait in `Inflow` until the terminal has taken the chunk before.
 * - Keys typed while there is no connection are dropped, not stored: a command must not run minutes later.
 */

import { Inflow } from './inflow.ts';
import type { Link, Sink, Socket, World } from './console-world.ts';

const OPEN = 1;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 8_000;
/** A connection that held this long was a good one: the next wait starts small again. */
const GOOD_AFTER_MS = 5_000;
const HELLO_LIMIT_MS = 10_000;
const PING_EVERY_MS = 15_000;
const PONG_LIMIT_MS = 10_000;
const REPLAY_LIMIT_MS = 1_500;
/** A paste goes out in pieces, and waits while the socket has this much unsent. */
const SEND_PIECE = 4 * 1024;
const SEND_HIGH = 64 * 1024;
const SEND_LIMIT = 1024 * 1024;
const SEND_POLL_MS = 20;
/** What the gateway takes as a terminal's size. */
const MOST_ROWS = 500;
const MOST_COLS = 1000;

/** Refusals that no later attempt can change. `not_ready` may still come true, `network` may pass. */
const FINAL = new Set(['unauthorized', 'forbidden', 'not_found', 'origin', 'unknown_machine', 'invalid_request']);

export class ConsoleClient {
  readonly #world: World;
  readonly #sink: Sink;
  readonly #base: string;
  #socket: Socket | null = null;
  #epoch: string | null = null;
  /** This page has seen no byte of this console yet: what is missing is history, not a loss. */
  #fresh = true;
  #offset = 0;
  #attempt = 0;
  #helloAt: number | null = null;
  #timers = new Map<string, number>();
  readonly #inflow: Inflow;
  #replaying = false;
  #out: Uint8Array<ArrayBuffer>[] = [];
  #outBytes = 0;
  #size: { rows: number; cols: number } | null = null;
  #closed = false;

  /** `base` is the console's address with its query, without epoch and offset. */
  constructor(base: string, sink: Sink, world: World) {
    this.#base = base;
    this.#sink = sink;
    this.#inflow = new Inflow(sink);
    this.#world = world;
  }

  connect(): void {
    if (this.#closed || this.#socket) return;
    this.#clear('retry');
    this.#sink.link({ state: 'connecting', attempt: this.#attempt });
    const socket = this.#world.open(this.url());
    this.#socket = socket;
    socket.binaryType = 'arraybuffer';
    socket.onmessage = (event) => {
      if (this.#socket === socket) this.#received(event.data);
    };
    socket.onclose = (event) => {
      if (this.#socket === socket) void this.#lost(event.code, event.reason);
    };
    socket.onerror = null;
    this.#after('hello', HELLO_LIMIT_MS, () => this.#giveUp());
  }

  url(): string {
    if (this.#epoch === null) return this.#base;
    const joint = this.#base.includes('?') ? '&' : '?';
    return `${this.#base}${joint}epoch=${encodeURIComponent(this.#epoch)}&offset=${this.#offset}`;
  }

  /** Try at once instead of waiting out the backoff (the network came back, or someone pressed the button). */
  hurry(): void {
    if (this.#closed || this.#socket) return;
    this.#attempt = 0;
    this.connect();
  }

  /** Send bytes to the machine. False: there is no connection, nothing was sent. */
  input(bytes: Uint8Array<ArrayBuffer>): boolean {
    if (this.#helloAt === null || this.#outBytes + bytes.length > SEND_LIMIT) return false;
    for (let at = 0; at < bytes.length; at += SEND_PIECE) {
      this.#out.push(bytes.subarray(at, at + SEND_PIECE));
    }
    this.#outBytes += bytes.length;
    this.#flush();
    return true;
  }

  resize(rows: number, cols: number): void {
    const size = { rows: Math.min(rows, MOST_ROWS), cols: Math.min(cols, MOST_COLS) };
    if (this.#size?.rows === size.rows && this.#size.cols === size.cols) return;
    this.#size = size;
    this.#control({ type: 'resize', ...size });
  }

  close(): void {
    this.#closed = true;
    this.#drop();
  }

  #received(data: unknown): void {
    this.#clear('pong');
    if (typeof data === 'string') {
      this.#message(data);
    } else if (data instanceof ArrayBuffer) {
      this.#fresh = false;
      this.#offset += data.byteLength;
      this.#inflow.push(new Uint8Array(data));
    }
  }

  #message(text: string): void {
    let message: Record<string, unknown>;
    try {
      message = JSON.parse(text) as Record<string, unknown>;
    } catch {
      return;
    }
    switch (message['type']) {
      case 'hello':
        this.#hello(String(message['epoch']), Number(message['offset']), message['readonly'] === true);
        break;
      case 'gap':
        this.#gap(Number(message['from']), Number(message['to']));
        break;
      case 'viewers':
        this.#replayed(); // the gateway sends it once what was kept is out
        this.#sink.viewers(Number(message['count']), Number(message['staff'] ?? 0));
        break;
      case 'ending':
        this.#sink.ending(String(message['reason'] ?? ''), String(message['message'] ?? ''));
        break;
      default: // pong, and kinds that a newer server may know
        break;
    }
  }

  /** In front of the first bytes, or in the middle of them when this page was too slow for the server's buffer. */
  #gap(from: number, to: number): void {
    if (!(to > from)) return;
    this.#offset = Math.max(this.#offset, to);
    this.#sink.gap(to - from, this.#fresh);
  }

  #hello(epoch: string, offset: number, readonly: boolean): void {
    this.#clear('hello');
    this.#fresh = this.#epoch === null;
    if (this.#epoch !== epoch) {
      this.#replaying = true;
      this.#sink.replaying(true);
      this.#after('replay', REPLAY_LIMIT_MS, () => this.#replayed());
    }
    if (this.#epoch !== null && this.#epoch !== epoch) this.#sink.renewed();
    this.#epoch = epoch;
    this.#offset = Number.isFinite(offset) ? offset : 0;
    this.#helloAt = this.#world.now();
    this.#sink.link({ state: 'open', readonly });
    if (this.#size) this.#control({ type: 'resize', ...this.#size });
    this.#after('ping', PING_EVERY_MS, () => this.#ping());
  }

  /** All that was kept has come; it is over for the terminal when it has parsed it. */
  #replayed(): void {
    this.#clear('replay');
    if (!this.#replaying) return;
    this.#replaying = false;
    void this.#inflow.parsed().then(() => {
      if (!this.#replaying) this.#sink.replaying(false);
    });
  }

  #ping(): void {
    this.#control({ type: 'ping' });
    this.#after('pong', PONG_LIMIT_MS, () => this.#giveUp());
    this.#after('ping', PING_EVERY_MS, () => this.#ping());
  }

  /** The other end is silent: a half-open connection would never close by itself. */
  #giveUp(): void {
    const socket = this.#socket;
    if (!socket) return;
    void this.#lost(1006, '');
    socket.close();
  }

  async #lost(code: number, reason: string): Promise<void> {
    const opened = this.#helloAt !== null;
    if (opened && this.#world.now() - (this.#helloAt ?? 0) >= GOOD_AFTER_MS) this.#attempt = 0;
    this.#drop();
    if (this.#closed) return;
    if (code === 4000) {
      this.#closed = true;
      this.#sink.link({ state: 'over', reason });
      return;
    }
    const waiting = this.#wait(code);
    // A browser does not tell why an upgrade was refused; the same address without it does.
    if (opened) return;
    const refusal = await this.#world.whyNot(this.url());
    if (this.#closed || this.#socket || refusal === null) return;
    if (!FINAL.has(refusal)) {
      this.#sink.link({ ...waiting, code: refusal });
      return;
    }
    this.#closed = true;
    this.#clear('retry');
    this.#sink.link({ state: 'refused', code: refusal });
  }

  #wait(why: number): Link & { state: 'waiting' } {
    const full = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#attempt, 10));
    const ms = full * (0.5 + this.#world.random() / 2);
    this.#attempt += 1;
    const link = { state: 'waiting' as const, attempt: this.#attempt, retryAt: this.#world.now() + ms, why, code: null };
    this.#sink.link(link);
    this.#after('retry', ms, () => this.connect());
    return link;
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = null;
    this.#helloAt = null;
    this.#out = [];
    this.#outBytes = 0;
    for (const name of [...this.#timers.keys()]) this.#clear(name);
    if (socket && socket.readyState <= OPEN) socket.close();
  }

  #flush(): void {
    const socket = this.#socket;
    if (!socket || socket.readyState !== OPEN) return;
    while (this.#out.length > 0) {
      if (socket.bufferedAmount > SEND_HIGH) {
        if (!this.#timers.has('send')) this.#after('send', SEND_POLL_MS, () => this.#flush());
        return;
      }
      const piece = this.#out.shift();
      if (!piece) return;
      this.#outBytes -= piece.length;
      socket.send(piece);
    }
  }

  #control(message: object): void {
    if (this.#socket?.readyState === OPEN && this.#helloAt !== null) this.#socket.send(JSON.stringify(message));
  }

  #after(name: string, ms: number, fn: () => void): void {
    this.#clear(name);
    const id = this.#world.setTimeout(() => {
      this.#timers.delete(name);
      fn();
    }, ms);
    this.#timers.set(name, id);
  }

  #clear(name: string): void {
    const id = this.#timers.get(name);
    if (id !== undefined) this.#world.clearTimeout(id);
    this.#timers.delete(name);
  }
}
