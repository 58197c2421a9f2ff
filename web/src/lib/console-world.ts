/**
 * What the console client needs from outside and tells to the outside, as interfaces, and the browser's own kind of it.
 */

export type Link =
  | { state: 'connecting'; attempt: number }
  | { state: 'open'; readonly: boolean }
  | { state: 'waiting'; attempt: number; retryAt: number; why: number; code: string | null }
  | { state: 'refused'; code: string }
  | { state: 'over'; reason: string };

export interface Sink {
  /** Take these bytes; resolve when they are parsed. */
  write(chunk: Uint8Array): Promise<void>;
  /** A new upstream: colours and modes of the old one no longer hold. */
  renewed(): void;
  /** Bytes that this page will never see; `earlier` ones are from before it was there. */
  gap(lost: number, earlier: boolean): void;
  /**
   * True while bytes from before come in again: what the terminal answers to questions in them (who are you, where
   * is the cursor) must not be sent, or it stands as junk in the shell.
   */
  replaying(on: boolean): void;
  link(link: Link): void;
  viewers(count: number, staff: number): void;
  ending(reason: string, message: string): void;
}

/** Timers, randomness and the question "why not", so that tests need no network and no real time. */
export interface World {
  open(url: string): Socket;
  /** null: it would open. Otherwise the code of the refusal; `network` when there was no answer. */
  whyNot(url: string): Promise<string | null>;
  setTimeout(fn: () => void, ms: number): number;
  clearTimeout(id: number): void;
  now(): number;
  random(): number;
}

export interface Socket {
  binaryType: string;
  readyState: number;
  bufferedAmount: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  onerror: ((event: never) => void) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number): void;
}

/** The real world: browser sockets, and a plain GET of the same address to learn the reason of a refusal. */
export function browserWorld(): World {
  return {
    open: (url) => new WebSocket(url.replace(/^http/, 'ws')) as unknown as Socket,
    whyNot: async (url) => {
      try {
        const answer = await fetch(url, {
          credentials: 'same-origin',
          cache: 'no-store',
          signal: AbortSignal.timeout(10_000),
        });
        if (answer.ok) return null;
        const problem: unknown = await answer.json();
        return String((problem as { code?: unknown }).code ?? 'unexpected');
      } catch {
        return 'network';
      }
    },
    setTimeout: (fn, ms) => window.setTimeout(fn, ms),
    clearTimeout: (id) => window.clearTimeout(id),
    now: () => Date.now(),
    random: () => Math.random(),
  };
}

/** `ws(s)://same host` + the session's console address for one machine. */
export function consoleUrl(origin: string, console_url: string, machine: string): string {
  const url = new URL(console_url, origin);
  url.searchParams.set('machine', machine);
  return url.href;
}
