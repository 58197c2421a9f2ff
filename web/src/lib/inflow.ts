/**
 * Bytes on their way into the terminal. A chunk is written when the one before is parsed (the sink's promise), so
 * many small frames become few writes; what piles up beyond `LIMIT` is dropped from the front and told as a gap, so a
 * flood cannot eat the tab's memory.
 */
import type { Sink } from './console-world.ts';

const CHUNK = 128 * 1024;
const LIMIT = 4 * 1024 * 1024;

export class Inflow {
  readonly #sink: Pick<Sink, 'write' | 'gap'>;
  #queue: Uint8Array[] = [];
  #queued = 0;
  #writing = false;
  #waiting: (() => void)[] = [];

  constructor(sink: Pick<Sink, 'write' | 'gap'>) {
    this.#sink = sink;
  }

  push(chunk: Uint8Array): void {
    this.#queue.push(chunk);
    this.#queued += chunk.length;
    let lost = 0;
    while (this.#queued > LIMIT && this.#queue.length > 1) {
      const first = this.#queue.shift();
      lost += first?.length ?? 0;
      this.#queued -= first?.length ?? 0;
    }
    if (lost > 0) this.#sink.gap(lost, false);
    void this.#drain();
  }

  /** Resolves when the terminal has taken what waits now. */
  parsed(): Promise<void> {
    if (!this.#writing) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  async #drain(): Promise<void> {
    if (this.#writing) return;
    this.#writing = true;
    while (this.#queue.length > 0) await this.#sink.write(this.#batch());
    this.#writing = false;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #batch(): Uint8Array {
    const parts: Uint8Array[] = [];
    let size = 0;
    while (this.#queue.length > 0 && (size === 0 || size + (this.#queue[0]?.length ?? 0) <= CHUNK)) {
      const part = this.#queue.shift();
      if (!part) break;
      parts.push(part);
      size += part.length;
    }
    this.#queued -= size;
    const only = parts[0];
    if (parts.length === 1 && only) return only;
    const all = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}
