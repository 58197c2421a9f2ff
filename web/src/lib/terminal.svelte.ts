/**
 * One terminal: xterm in front of a `ConsoleClient`. What the student must know about the connection is state
 * here; how it looks is in Terminal.svelte.
 */
import { FitAddon } from '@xterm/addon-fit';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal, type ITheme } from '@xterm/xterm';
import { ConsoleClient } from './console.ts';
import { browserWorld, consoleUrl, type Link, type Sink } from './console-world.ts';
import { bytes } from './format.ts';
import { i18n } from './i18n.svelte.ts';
import { copyText } from './markdown.ts';
import { typing } from './typing.ts';

const RESIZE_QUIET_MS = 150;
const FONT_KEY = 'ttlab.terminal-font';
const FONT_LEAST = 10;
const FONT_MOST = 26;
const NOTICE_MS = 12_000;

const THEME: ITheme = {
  background: '#0b0f10',
  foreground: '#dfe5e2',
  cursor: '#f2b84b',
  cursorAccent: '#0b0f10',
  selectionBackground: '#2f5a54',
  black: '#1d2528',
  red: '#f1958b',
  green: '#7fd197',
  yellow: '#f0bd5a',
  blue: '#7db3ee',
  magenta: '#cfa2e8',
  cyan: '#63cdb7',
  white: '#d5dcd9',
  brightBlack: '#7d8b87',
  brightRed: '#ffb3aa',
  brightGreen: '#a2e6b4',
  brightYellow: '#ffd98a',
  brightBlue: '#a6cdf8',
  brightMagenta: '#e3c4f5',
  brightCyan: '#93e4d3',
  brightWhite: '#ffffff',
};

/** Whether the keys are nobody's: the page was just opened, or nothing in it was chosen. */
function idle(): boolean {
  const active = document.activeElement;
  return active === null || active === document.body || active.id === 'main';
}

function keptFont(): number {
  try {
    const px = Number(localStorage.getItem(FONT_KEY));
    return px >= FONT_LEAST && px <= FONT_MOST ? px : 15;
  } catch {
    return 15;
  }
}

export class TerminalView {
  link = $state.raw<Link>({ state: 'connecting', attempt: 0 });
  viewers = $state.raw({ count: 1, staff: 0 });
  /** Something that happened and is worth a line for a while: lost output, a renewed connection. */
  notice = $state<string | null>(null);
  ending = $state<string | null>(null);
  hasSelection = $state(false);

  readonly #term: Terminal;
  readonly #fit = new FitAddon();
  readonly #client: ConsoleClient;
  #node: HTMLElement | null = null;
  #observer: ResizeObserver | null = null;
  #quiet: number | undefined;
  #noticeTimer: number | undefined;
  #muted = false;
  #encoder = new TextEncoder();
  #online = (): void => this.#client.hurry();

  constructor(consolePath: string, machine: string, onleave: () => void) {
    this.#term = new Terminal({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
      fontSize: keptFont(),
      lineHeight: 1.15,
      scrollback: 5_000,
      cursorBlink: true,
      theme: THEME,
      macOptionIsMeta: true,
      minimumContrastRatio: 4.5,
    });
    this.#term.loadAddon(this.#fit);
    this.#term.loadAddon(new WebLinksAddon((_, uri) => window.open(uri, '_blank', 'noopener,noreferrer')));
    this.#term.attachCustomKeyEventHandler((event) => this.#key(event, onleave));
    this.#term.onData((data) => this.#input(this.#encoder.encode(data)));
    this.#term.onBinary((data) => this.#input(Uint8Array.from(data, (char) => char.charCodeAt(0))));
    this.#term.onSelectionChange(() => (this.hasSelection = this.#term.hasSelection()));
    this.#client = new ConsoleClient(consoleUrl(location.href, consolePath, machine), this.#sink(), browserWorld());
  }

  /** Put the terminal into `node` and connect; the answer takes both away. */
  mount(node: HTMLElement): () => void {
    this.#node = node;
    this.#term.open(node);
    this.#term.textarea?.setAttribute('aria-label', i18n.w.terminal);
    this.#refit();
    this.#observer = new ResizeObserver(() => {
      clearTimeout(this.#quiet);
      this.#quiet = window.setTimeout(() => this.#refit(), RESIZE_QUIET_MS);
    });
    this.#observer.observe(node);
    // The cells were measured with whatever font was there; a late one has other widths.
    void document.fonts?.ready.then(() => this.#refit());
    addEventListener('online', this.#online);
    this.#client.connect();
    return () => {
      removeEventListener('online', this.#online);
      this.#observer?.disconnect();
      clearTimeout(this.#quiet);
      clearTimeout(this.#noticeTimer);
      this.#client.close();
      this.#term.dispose();
    };
  }

  focus(): void {
    this.#term.focus();
  }

  hurry(): void {
    this.#client.hurry();
  }

  async copy(): Promise<void> {
    if (!this.#term.hasSelection()) return;
    await copyText(this.#term.getSelection());
    this.#term.focus();
  }

  async paste(): Promise<void> {
    try {
      this.#term.paste(await navigator.clipboard.readText());
    } catch {
      this.#tell(i18n.w.pasteRefused);
    }
    this.#term.focus();
  }

  zoom(by: number): void {
    const size = Math.min(FONT_MOST, Math.max(FONT_LEAST, (this.#term.options.fontSize ?? 15) + by));
    this.#term.options.fontSize = size;
    try {
      localStorage.setItem(FONT_KEY, String(size));
    } catch {
      // not remembered
    }
    this.#refit();
  }

  dismiss(): void {
    this.notice = null;
  }

  #input(data: Uint8Array<ArrayBuffer>): void {
    if (this.#muted) return;
    if (this.#client.input(data)) typing.at = Date.now();
  }

  /** Keys that are the page's, not the machine's. Everything else goes to the machine. */
  #key(event: KeyboardEvent, onleave: () => void): boolean {
    if (!event.ctrlKey || event.altKey || event.metaKey) return true;
    const copies = (event.shiftKey && event.code === 'KeyC') || (!event.shiftKey && event.code === 'Insert');
    if (copies) {
      if (event.type === 'keydown') void this.copy();
      event.preventDefault();
      return false;
    }
    if (event.shiftKey && event.code === 'KeyV') return false; // the browser pastes
    if (event.shiftKey && event.key === 'ArrowLeft') {
      if (event.type === 'keydown') onleave();
      event.preventDefault();
      return false;
    }
    return true;
  }

  #refit(): void {
    const size = this.#fit.proposeDimensions();
    // A terminal that is not shown has no size; it is fitted when it comes to the front.
    if (!size || !Number.isFinite(size.cols) || size.cols < 2 || size.rows < 1) return;
    this.#fit.fit();
    this.#client.resize(this.#term.rows, this.#term.cols);
  }

  #tell(text: string): void {
    this.notice = text;
    clearTimeout(this.#noticeTimer);
    this.#noticeTimer = window.setTimeout(() => (this.notice = null), NOTICE_MS);
  }

  #sink(): Sink {
    return {
      write: (chunk) => new Promise((resolve) => this.#term.write(chunk, resolve)),
      renewed: () => {
        // Colours, character sets and modes of the lost stream must not leak into the new one.
        this.#term.write('\x1b[!p\x1b[0m\r\n');
        this.#tell(i18n.w.renewed);
      },
      gap: (lost, earlier) => {
        const line = earlier ? i18n.w.earlierLine(bytes(lost)) : i18n.w.gapLine(bytes(lost));
        if (this.#term.buffer.active.type === 'normal') this.#term.write(`\r\n\x1b[0;33m${line}\x1b[0m\r\n`);
        if (!earlier) this.#tell(i18n.w.gap(bytes(lost)));
      },
      replaying: (on) => (this.#muted = on),
      link: (link) => {
        const first = this.link.state !== 'open' && link.state === 'open';
        this.link = link;
        this.#term.options.disableStdin = link.state !== 'open' || link.readonly;
        if (first && idle() && !this.#node?.closest('[hidden]')) this.#term.focus();
      },
      viewers: (count, staff) => (this.viewers = { count, staff }),
      ending: (_, message) => (this.ending = message),
    };
  }
}
