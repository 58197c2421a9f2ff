/** Typing into the page's terminal and reading what it shows, as a person does: no other way to the machine. */

const POLL_MS = 150;
const KEY_DELAY_MS = 4;
/** A prompt of a root shell at the end of what is shown. */
const PROMPT = /[#$] ?$/;

/** Solutions in either form, as a map from step number to what is typed in one go. */
export function plan(given, numbers) {
  if (!Array.isArray(given)) throw new Error('the solutions must be a list, one entry per step');
  return new Map(
    given.map((entry, index) => (Array.isArray(entry) ? [numbers[index], joined(entry)] : [entry.step, joined(entry.lines)])),
  );
}

/** Lines that the shell reads as one command (a here-document, a line that goes on) belong together. */
function joined(lines) {
  const all = [];
  let open = null;
  for (const line of lines) {
    if (open !== null) {
      all[all.length - 1] += `\n${line}`;
      if (open === '' ? !line.endsWith('\\') : line.trim() === open) open = null;
    } else {
      all.push(line);
      if (typeof line === 'string') open = /<<-?\s*['"]?(\w+)/.exec(line)?.[1] ?? (line.endsWith('\\') ? '' : null);
    }
  }
  return all;
}

export class Console {
  #count = 0;

  constructor(page, say, lineMs) {
    this.page = page;
    this.say = say;
    this.lineMs = lineMs;
  }

  async open() {
    this.say('waiting for the terminal to connect (at most 60 s)');
    await this.page.locator('[data-link=open]').first().waitFor({ timeout: 60_000 });
    await this.page.locator('.xterm-helper-textarea').first().focus();
    // A serial line shows its prompt when it is asked for one.
    await this.#until('a prompt', PROMPT, 60_000, () => this.#type('\r'));
    await this.do({ send: 'echo ttlab-$((40+2))', expect: '^ttlab-42$' });
  }

  /** One line; plain ones are waited for with a mark that only the shell can print. */
  async do(line) {
    if (typeof line !== 'string') {
      await this.#type(`${line.send}\r`);
      const expected = line.expect ? new RegExp(line.expect, 'm') : PROMPT;
      const poke = line.poke === undefined ? undefined : () => this.#type(line.poke);
      await this.#until(`/${expected.source}/ after "${line.send}"`, expected, (line.timeout_s ?? 120) * 1000, poke, line.send);
      return;
    }
    this.#count += 1;
    const a = 1000 + this.#count;
    this.say(`type: ${line}`);
    await this.#type(`${line}\r`);
    await this.#type(`echo done-$((${a}+1))-\r`);
    await this.#until(`the end of "${line}"`, new RegExp(`done-${a + 1}-`), this.lineMs);
  }

  async #type(text) {
    await this.page.locator('.xterm-helper-textarea').first().focus();
    await this.page.keyboard.type(text.replace(/\n/g, '\r'), { delay: KEY_DELAY_MS });
  }

  /** The text on the screen, without blanks at line ends; lines that the terminal broke come as several. */
  async text() {
    return this.page.evaluate(() =>
      [...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent.replace(/\u00a0/g, ' ').trimEnd()).join('\n').trimEnd(),
    );
  }

  /** With `after`, only what stands behind its last occurrence counts: an older prompt is no answer. */
  async #until(what, pattern, ms, poke, after) {
    this.say(`waiting for ${what} (at most ${ms / 1000} s)`);
    const until = Date.now() + ms;
    let next = Date.now() + 2_000;
    for (;;) {
      const shown = await this.text();
      const at = after === undefined ? -1 : shown.lastIndexOf(after);
      const text = at < 0 ? shown : shown.slice(at + after.length);
      if (pattern.test(text)) return;
      if (Date.now() > until) throw new Error(`no ${what} within ${ms / 1000} s; the screen ends with:\n${shown.split('\n').slice(-15).join('\n')}`);
      if (poke && Date.now() > next) {
        next = Date.now() + 3_000;
        await poke();
      }
      await this.page.waitForTimeout(POLL_MS);
    }
  }
}
