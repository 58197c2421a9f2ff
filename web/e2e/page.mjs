/**
 * The page itself in a real browser against the mock (dev/mock.mjs): what unit tests cannot see. Needs `npm run build`.
 *
 *   node e2e/page.mjs [NAME-PART]
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { launch } from '../dev/browser.mjs';

const LIMIT = 20_000;
const mock = spawn(process.execPath, [new URL('../dev/mock.mjs', import.meta.url).pathname, '--port', '0', '--speed', '4'], { stdio: ['ignore', 'pipe', 'inherit'] });
const [line] = await once(mock.stdout, 'data');
const base = /http:\S+/.exec(line.toString())[0];
const browser = await launch();
const tests = [];
const test = (name, run) => tests.push({ name, run });

const tell = (what, body = {}) => fetch(`${base}/mock/${what}`, { method: 'POST', body: JSON.stringify(body) });
let count = 0;

async function visitor(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-GB', ...options });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: base });
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  page.trouble = [];
  page.on('pageerror', (error) => page.trouble.push(error.message));
  page.on('console', (m) => m.type() === 'error' && !/^(Failed to load|WebSocket connection)/.test(m.text()) && page.trouble.push(m.text()));
  await page.goto(base);
  return page;
}

async function student(options) {
  const page = await visitor(options);
  count += 1;
  await page.getByTestId('login-user').fill(`student${count}`);
  await page.getByTestId('login-go').click();
  await page.getByTestId('lab-systemd-repair').waitFor();
  return page;
}

async function ready(lab = 'systemd-repair', options = {}) {
  const page = await student(options);
  await page.getByTestId(`start-${lab}`).click();
  await page.locator('[data-link=open]').first().waitFor();
  return page;
}

const screen = (page) =>
  page.evaluate(() => [...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent.replace(/\u00a0/g, ' ').trimEnd()).join('\n'));

async function until(what, condition) {
  const end = Date.now() + LIMIT;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${LIMIT / 1000} s: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

async function type(page, text) {
  await page.locator('.xterm-helper-textarea').first().focus();
  await page.keyboard.type(text);
}

test('a wrong clock of the browser does not show: the server is 95 s ahead, a whole hour is left', async () => {
  const page = await ready();
  const text = await page.getByTestId('time-left').innerText();
  assert.match(text, /^(59:5\d|1:00:00) left$/);
  return page;
});

test('the language is remembered, and the page says which it is', async () => {
  const page = await student();
  await page.getByTestId('lang-zh').click();
  await page.reload();
  await page.getByText('实验', { exact: true }).first().waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-CN');
  return page;
});

test('a lab that is not supported cannot be started, and says why', async () => {
  const page = await student();
  assert.ok(await page.getByTestId('start-containers').isDisabled());
  assert.match(await page.getByTestId('lab-containers').innerText(), /runtime: pod/);
  return page;
});

test('a full house says when the next place is expected, on the clock of the server', async () => {
  const page = await student();
  await page.getByTestId('start-full-house').click();
  assert.match(await page.getByTestId('refusal').innerText(), /8 of 8[^]*4:0\d/);
  return page;
});

test('a second lab leads to the first one', async () => {
  const page = await ready();
  await page.locator('a.home').click();
  await page.getByTestId('start-disk-rescue').click();
  await page.locator('[data-testid=refusal][data-code=session_exists]').waitFor();
  await page.getByTestId('refusal-go').click();
  await page.locator('[data-link=open]').waitFor();
  return page;
});

test('a fresh visit is brought to the running session, with what the terminal showed', async () => {
  const page = await ready();
  await type(page, 'echo remember-me\r');
  await until('the echo', async () => /^remember-me$/m.test(await screen(page)));
  await page.goto(base);
  await page.locator('[data-link=open]').waitFor();
  await until('the old output', async () => /^remember-me$/m.test(await screen(page)));
  return page;
});

test('a reload in the middle of a lab comes back to it', async () => {
  const page = await ready();
  await page.reload();
  await page.locator('[data-link=open]').waitFor();
  assert.equal(await page.getByTestId('state').getAttribute('data-state'), 'ready');
  return page;
});

test('a session of someone else is not found, and the way back is shown', async () => {
  const other = await ready();
  const page = await student();
  await page.goto(other.url());
  await page.getByText('it is not yours').waitFor();
  await other.context().close();
  return page;
});

test('the machine learns the size of the terminal, also when the window changes', async () => {
  const page = await ready();
  const size = async () => {
    await type(page, 'stty\r');
    let found = null;
    await until('the size', async () => (found = [...(await screen(page)).matchAll(/rows (\d+); columns (\d+)/g)].at(-1)) !== undefined && found !== null);
    return [Number(found[1]), Number(found[2])];
  };
  const [rows, cols] = await size();
  assert.ok(rows > 20 && cols > 60);
  await page.setViewportSize({ width: 1280, height: 500 });
  await until('fewer rows', async () => (await size())[0] < rows);
  return page;
});

test('a cut network is shown, and the terminal goes on without losing or doubling a byte', async () => {
  const page = await ready();
  await type(page, 'echo before\r');
  await until('the echo', async () => /^before$/m.test(await screen(page)));
  await tell('cut', { ms: 3_500 });
  await page.getByTestId('lost').waitFor();
  await page.locator('[data-link=waiting]').waitFor();
  await page.getByTestId('lost').waitFor({ state: 'detached' });
  await page.locator('[data-link=open]').waitFor();
  await type(page, 'echo after\r');
  await until('the echo', async () => /^after$/m.test(await screen(page)));
  assert.equal((await screen(page)).match(/^before$/gm).length, 1);
  assert.equal(await page.getByTestId('terminal-notice').count(), 0);
  return page;
});

test('a new console epoch is told, never silent', async () => {
  const page = await ready();
  await type(page, 'newepoch\r');
  await page.getByTestId('terminal-notice').waitFor();
  await page.locator('[data-link=open]').waitFor();
  await until('the mark of the gap', async () => /output lost/.test(await screen(page)));
  return page;
});

test('a flood of output is shown to its end', async () => {
  const page = await ready();
  await type(page, 'flood\r');
  await until('the end of the flood', async () => /flood over/.test(await screen(page)));
  assert.match(await screen(page), /line 19999/);
  return page;
});

test('a check fails, then passes, and its step turns green', async () => {
  const page = await ready();
  await page.getByTestId('check-1').click();
  await page.locator('[data-testid=step-1][data-outcome=failed]').waitFor();
  await type(page, 'solve 1\r');
  await page.getByTestId('check-1').click();
  await page.locator('[data-testid=step-1][data-outcome=passed]').waitFor();
  assert.equal(await page.getByTestId('progress').getAttribute('data-done'), '1');
  await page.getByTestId('next-1').click();
  await page.getByTestId('check-2').waitFor();
  return page;
});

test('more time can be added until there is none', async () => {
  const page = await ready();
  for (let i = 0; i < 4; i++) {
    await page.getByTestId('extend').click();
    await page.waitForFunction((n) => new RegExp(`^1:${n}`).test(document.querySelector('[data-testid=time-left]').textContent.trim()), i < 3 ? String(14 + 15 * i) : '59');
  }
  await until('no more to add', () => page.getByTestId('extend').isDisabled());
  return page;
});

test('idleness is warned of, and typing ends the warning', async () => {
  const page = await ready();
  await tell('idle', { ms: 250_000 });
  await page.getByTestId('idle-warning').waitFor();
  assert.match(await page.getByTestId('idle-warning').innerText(), /4:(0\d|1[01])/);
  await type(page, 'x');
  await page.getByTestId('idle-warning').waitFor({ state: 'detached' });
  return page;
});

test('a set-up that fails shows the reason and the end of its log, and can be started again', async () => {
  const page = await student();
  await page.getByTestId('start-broken-prepare').click();
  await page.locator('[data-testid=summary][data-reason=prepare_failed]').waitFor();
  assert.match(await page.getByTestId('log-tail').innerText(), /invalid user/);
  assert.equal(await page.locator('[data-phase=prepare]').getAttribute('data-status'), 'failed');
  await page.locator('[data-testid=summary][data-state=ended]').waitFor();
  await page.getByTestId('start-broken-prepare').click();
  await page.getByTestId('start-screen').waitFor();
  return page;
});

test('a machine that is switched off says so', async () => {
  const page = await ready();
  await type(page, 'poweroff\r');
  await page.locator('[data-testid=summary][data-reason=vm_stopped]').waitFor();
  return page;
});

test('the keyboard alone leaves the terminal, and ends a session only after a question', async () => {
  const page = await ready();
  await page.locator('.xterm-helper-textarea').focus();
  await page.keyboard.press('Control+Shift+ArrowLeft');
  assert.ok(await page.evaluate(() => document.activeElement?.closest('#steps') !== null));
  await page.getByTestId('end').focus();
  await page.keyboard.press('Enter');
  await page.getByTestId('confirm-no').waitFor();
  await page.keyboard.press('Escape');
  await page.getByTestId('confirm-no').waitFor({ state: 'detached' });
  assert.equal(await page.getByTestId('state').getAttribute('data-state'), 'ready');
  return page;
});

test('copy and paste go through the clipboard', async () => {
  const page = await ready();
  await page.evaluate(() => navigator.clipboard.writeText('echo pasted-text'));
  await page.locator('.tools button').nth(1).click();
  await until('the pasted text', async () => /echo pasted-text/.test(await screen(page)));
  const box = await page.locator('.xterm-rows > div', { hasText: 'pasted-text' }).last().boundingBox();
  await page.mouse.dblclick(box.x + 130, box.y + box.height / 2);
  await page.keyboard.press('Control+Shift+C');
  await until('a copy', async () => /^(echo|pasted-text)$/.test(await page.evaluate(() => navigator.clipboard.readText())));
  return page;
});

test('several machines have a terminal each', async () => {
  const page = await ready('two-machines');
  await page.getByRole('button', { name: 'server' }).click();
  await page.locator('[data-testid=terminal-server][data-link=open]').waitFor();
  await page.locator('[data-testid=terminal-server] .xterm-helper-textarea').focus();
  await page.keyboard.type('echo here\r');
  await until('the echo', async () => (await page.getByTestId('terminal-server').innerText()).includes('root@server'));
  return page;
});

test('an administrator ends a session and releases what was left', async () => {
  const other = await ready();
  const page = await visitor();
  await page.getByTestId('login-user').fill('root');
  await page.locator('label:has([data-testid=login-role-admin])').click();
  await page.getByTestId('login-go').click();
  await page.getByTestId('nav-admin').click();
  const id = new URL(other.url()).pathname.split('/').at(-1);
  await page.getByTestId(`admin-session-${id}`).getByRole('button').click();
  await page.getByTestId('confirm-yes').click();
  await other.locator('[data-testid=summary][data-reason=admin]').waitFor();
  await page.getByTestId('admin-ghosts').getByRole('checkbox').check();
  await page.getByTestId('admin-release').click();
  await page.getByTestId('confirm-yes').click();
  await other.context().close();
  return page;
});

let failed = 0;
for (const { name, run } of tests.filter((one) => one.name.includes(process.argv[2] ?? ''))) {
  const begun = Date.now();
  try {
    const page = await run();
    assert.deepEqual(page.trouble, [], 'the browser complained');
    await page.context().close();
    console.log(`ok    ${name} (${Date.now() - begun} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n      ${error.message.split('\n').slice(0, 6).join('\n      ')}`);
    for (const context of browser.contexts()) await context.close();
  }
}
await browser.close();
mock.kill();
process.exit(failed === 0 ? 0 : 1);
