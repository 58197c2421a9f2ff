/**
 * One lab from sign-in to nothing left, as a student does it in a browser, against a running stack:
 *
 *   node web/e2e/run.mjs --base URL --lab systemd-repair --solutions FILE.json [--user NAME] [--screenshots DIR]
 *
 * `--base` may come from LAB_WEB. FILE.json lists per step what to type: `[["line", …], …]` in step order, or
 * `[{"step": 1, "lines": ["line", {"send": "reboot", "expect": "root@\\S+:~#$", "timeout_s": 240}]}, …]`.
 * After each plain line the script waits until the shell has run it. Every wait has a deadline and says what it
 * waits for. Exit code 0: everything was as it must be.
 */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { launch } from '../dev/browser.mjs';
import { Console, plan } from './console.mjs';

const { values: args } = parseArgs({
  options: {
    base: { type: 'string', default: process.env.LAB_WEB },
    lab: { type: 'string', default: process.env.LAB_ID ?? 'systemd-repair' },
    solutions: { type: 'string' },
    user: { type: 'string', default: `e2e-${process.pid}` },
    lang: { type: 'string', default: 'en' },
    screenshots: { type: 'string' },
    screenshot: { type: 'string' },
    'ready-s': { type: 'string', default: '600' },
    'line-s': { type: 'string', default: '60' },
    'check-s': { type: 'string', default: '120' },
    'end-s': { type: 'string', default: '180' },
    'skip-failing-first': { type: 'boolean', default: false },
  },
});
const READY_MS = Number(args['ready-s']) * 1000;
const CHECK_MS = Number(args['check-s']) * 1000;
const END_MS = Number(args['end-s']) * 1000;
const PAGE_MS = 30_000;
const started = Date.now();
const shots = args.screenshots ?? args.screenshot;

const say = (text) => console.log(`[${((Date.now() - started) / 1000).toFixed(1).padStart(6)} s] ${text}`);

if (!args.base || !args.solutions) {
  console.error('usage: run.mjs --base URL --lab ID --solutions FILE.json [--screenshots DIR]');
  process.exit(64);
}

/** What the browser itself complained about; the page must give it no reason to. */
const complaints = [];
let pictures = 0;

async function picture(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  pictures += 1;
  await page.screenshot({ path: join(shots, `${String(pictures).padStart(2, '0')}-${name}.png`) });
}

async function wait(what, locator, timeout = PAGE_MS) {
  say(`waiting for ${what} (at most ${timeout / 1000} s)`);
  await locator.first().waitFor({ timeout });
}

async function signIn(page) {
  await page.goto(args.base, { timeout: PAGE_MS });
  await wait('the sign-in form', page.getByTestId('login-user'));
  await page.getByTestId('login-user').fill(args.user);
  await page.getByTestId('login-go').click();
  await wait(`lab ${args.lab} in the list`, page.getByTestId(`lab-${args.lab}`));
  await picture(page, 'labs');
}

/** Press Start and follow the phases until ready; an end before that is told with its reason. */
async function start(page) {
  await page.getByTestId(`start-${args.lab}`).click();
  await wait('the start page or a refusal', page.locator('[data-testid=start-screen], [data-testid=refusal], [data-link]'));
  const refusal = page.getByTestId('refusal');
  if ((await refusal.count()) > 0) throw new Error(`the start was refused: ${await refusal.innerText()}`);
  const until = Date.now() + READY_MS;
  let last = '';
  let pictured = false;
  for (;;) {
    if (Date.now() > until) throw new Error(`not ready after ${READY_MS / 1000} s; the last phase was ${last}`);
    const now = await page.evaluate(() => ({
      state: document.querySelector('[data-testid=state]')?.getAttribute('data-state') ?? '',
      phase: document.querySelector('[data-testid=phase][data-status=active]')?.getAttribute('data-phase') ?? '',
      end: document.querySelector('[data-testid=summary]')?.textContent ?? null,
    }));
    if (now.end !== null) throw new Error(`the session ended while starting: ${now.end.replace(/\s+/g, ' ').slice(0, 1500)}`);
    const line = `${now.state}${now.phase ? ` (${now.phase})` : ''}`;
    if (line !== last) say(`state ${line}`);
    last = line;
    if (now.phase === 'boot' && !pictured) {
      pictured = true;
      await picture(page, 'starting');
    }
    if (now.state === 'ready') return;
    await page.waitForTimeout(100);
  }
}

/** Press Check until the outcome is the wanted one; a check that could not be run is tried again. */
async function check(page, n, wanted) {
  const until = Date.now() + CHECK_MS;
  const head = page.getByTestId(`step-head-${n}`);
  if ((await head.getAttribute('aria-expanded')) !== 'true') await head.click();
  const button = page.getByTestId(`check-${n}`);
  const outcome = page.getByTestId(`outcome-${n}`);
  for (;;) {
    say(`check ${n}: must be ${wanted}`);
    await button.click({ timeout: PAGE_MS });
    await page.locator(`[data-testid=check-${n}]:not([disabled])`).waitFor({ timeout: CHECK_MS });
    const got = await page.getByTestId(`step-${n}`).getAttribute('data-outcome');
    const output = (await outcome.count()) > 0 ? (await outcome.innerText()).replace(/\s+/g, ' ').slice(0, 400) : '';
    say(`check ${n}: ${got}: ${output}`);
    if (got === wanted) return;
    const again = got === 'error' || wanted === 'passed';
    if (!again || Date.now() > until) throw new Error(`check ${n} is ${got}, not ${wanted}: ${output}`);
    await page.waitForTimeout(2_000);
  }
}

async function finish(page) {
  await page.getByTestId('end').click();
  await page.getByTestId('confirm-yes').click();
  await wait('the summary', page.locator('[data-testid=summary][data-reason=user]'));
  await wait('everything to be deleted', page.locator('[data-testid=summary][data-state=ended]'), END_MS);
  await picture(page, 'ended');
}

async function run(page) {
  await signIn(page);
  const lab = await page.evaluate(async (id) => (await fetch(`/api/labs/${id}`)).json(), args.lab);
  const steps = lab.steps.filter((step) => step.checkable).map((step) => step.n);
  const solutions = plan(JSON.parse(readFileSync(args.solutions, 'utf8')), lab.steps.map((step) => step.n));
  await start(page);
  const phases = await page.evaluate(async () => (await fetch('/api/sessions/current')).json());
  const shell = new Console(page, say, Number(args['line-s']) * 1000);
  await shell.open();
  await picture(page, 'ready');
  if (!args['skip-failing-first']) for (const n of steps) await check(page, n, 'failed');
  for (const n of lab.steps.map((step) => step.n)) {
    for (const line of solutions.get(n) ?? []) await shell.do(line);
    if (steps.includes(n)) await check(page, n, 'passed');
    await picture(page, `step-${n}`);
  }
  await wait('the page to say that all is done', page.getByTestId('all-done'));
  await picture(page, 'all-passed');
  await finish(page);
  const left = await page.evaluate(async () => (await fetch('/api/sessions/current')).json());
  if (left.id && left.state !== 'ended') throw new Error(`the api still has a live session: ${left.state}`);
  return phases;
}

const browser = await launch();
let code = 0;
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  await context.addInitScript((lang) => localStorage.setItem('ttlab.lang', lang), args.lang);
  const page = await context.newPage();
  page.setDefaultTimeout(PAGE_MS);
  page.on('pageerror', (error) => complaints.push(`error in the page: ${error.message}`));
  page.on('console', (message) => {
    // The browser also logs refusals that the page asks for (am I signed in?) and each attempt to reconnect.
    const expected = /^(Failed to load resource|WebSocket connection to)/;
    if (message.type() === 'error' && !expected.test(message.text())) complaints.push(message.text());
  });
  try {
    const session = await run(page);
    const begun = Date.parse(session.created_at);
    const times = session.timeline.map((entry) => `${entry.phase} ${((Date.parse(entry.at) - begun) / 1000).toFixed(1)} s`);
    say(`phases since the request: ${times.join(', ')}`);
    if (complaints.length > 0) throw new Error(`the browser complained: ${complaints.join(' | ')}`);
    say('passed');
  } catch (error) {
    code = 1;
    say(`FAILED: ${error.message}`);
    for (const complaint of complaints) say(`the browser complained: ${complaint}`);
    say(`page: ${page.url()}`);
    await picture(page, 'failed').catch(() => undefined);
  }
} finally {
  await browser.close();
}
process.exit(code);
