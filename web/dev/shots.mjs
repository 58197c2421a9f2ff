/**
 * Screenshots of every page against the mock, for looking at: `node dev/shots.mjs DIR [--only NAME]`.
 * In both languages, both lights and three widths where it matters.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { launch } from './browser.mjs';

const [dir = 'shots'] = process.argv.slice(2);
mkdirSync(dir, { recursive: true });
const mock = spawn(process.execPath, [new URL('mock.mjs', import.meta.url).pathname, '--port', '0', '--speed', '3'], { stdio: ['ignore', 'pipe', 'inherit'] });
const [line] = await once(mock.stdout, 'data');
const base = /http:\S+/.exec(line.toString())[0];
const browser = await launch();

async function page(scheme, lang, width = 1440, height = 900) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, locale: lang === 'zh' ? 'zh-CN' : 'en-GB' });
  await context.addInitScript((l) => localStorage.setItem('ttlab.lang', l), lang);
  const one = await context.newPage();
  one.on('console', (m) => m.type() === 'error' && console.log('console:', m.text()));
  one.on('pageerror', (e) => console.log('page error:', e.message));
  one.shot = (name) => one.screenshot({ path: join(dir, `${name}-${scheme}-${lang}-${width}.png`) });
  one.mock = (what, body = {}) => fetch(`${base}/mock/${what}`, { method: 'POST', body: JSON.stringify(body) });
  await one.goto(base);
  return one;
}

async function login(one, user, role = 'student') {
  await one.getByTestId('login-user').fill(user);
  await one.locator(`label:has([data-testid=login-role-${role}])`).click();
  await one.getByTestId('login-go').click();
}

async function tour(scheme, lang, width, height) {
  const one = await page(scheme, lang, width, height);
  await one.getByTestId('login-user').waitFor();
  await one.shot('1-login');
  await login(one, `student-${scheme}-${lang}-${width}`);
  await one.getByTestId('lab-systemd-repair').waitFor();
  await one.shot('2-labs');
  await one.getByTestId('start-full-house').click();
  await one.getByTestId('refusal').waitFor();
  await one.shot('3-refusal');
  await one.getByTestId('refusal-dismiss').click();
  await one.locator('a[href="/labs/systemd-repair"]').click();
  await one.getByTestId('start-systemd-repair').waitFor();
  await one.shot('4-lab');
  await one.getByTestId('start-systemd-repair').click();
  await one.locator('[data-phase=boot][data-status=active]').waitFor();
  await one.waitForTimeout(600);
  await one.shot('5-start');
  await one.locator('[data-link=open]').waitFor({ timeout: 20_000 });
  await one.locator('.xterm-helper-textarea').focus();
  await one.keyboard.type('systemctl status notes\r', { delay: 5 });
  await one.waitForTimeout(400);
  if (width > 860) {
    await one.getByTestId('check-1').click();
    await one.locator('[data-testid=step-1][data-outcome=failed]').waitFor();
    await one.getByTestId('hint-1').click();
    await one.shot('6-failed');
    await one.locator('.xterm-helper-textarea').focus();
    await one.keyboard.type('solve 1\r');
    await one.getByTestId('check-1').click();
    await one.locator('[data-testid=step-1][data-outcome=passed]').waitFor();
    await one.shot('7-passed');
    await one.mock('idle');
    await one.getByTestId('idle-warning').waitFor();
    await one.shot('8-idle');
    await one.getByTestId('end').click();
    await one.shot('9-confirm');
    await one.getByTestId('confirm-yes').click();
    await one.locator('[data-testid=summary][data-state=ended]').waitFor();
    await one.shot('a-summary');
  } else {
    await one.shot('6-terminal');
    await one.locator('.tabs button').first().click();
    await one.shot('7-steps');
  }
  await one.context().close();
}

async function trouble(scheme, lang) {
  const one = await page(scheme, lang);
  await login(one, `trouble-${scheme}-${lang}`);
  await one.getByTestId('start-broken-prepare').click();
  await one.locator('[data-testid=summary][data-reason=prepare_failed]').waitFor({ timeout: 20_000 });
  await one.shot('b-prepare-failed');
  await one.getByTestId('start-broken-prepare').waitFor();
  await one.goto(`${base}/`);
  await one.getByTestId('start-two-machines').click();
  await one.locator('[data-phase=boot][data-status=active]').waitFor({ timeout: 20_000 });
  await one.shot('c-two-machines-start');
  await one.locator('[data-link=open]').first().waitFor({ timeout: 20_000 });
  await one.mock('cut', { ms: 6000 });
  await one.getByTestId('lost').waitFor({ timeout: 20_000 });
  await one.shot('d-lost');
  await one.getByTestId('lost').waitFor({ state: 'detached', timeout: 30_000 });
  await one.locator('[data-link=open]').first().waitFor({ timeout: 20_000 });
  await one.shot('e-back');
  await one.mock('end', { reason: 'admin' });
  await one.locator('[data-testid=summary]').waitFor();
  await one.shot('f-ended-by-staff');
  await one.context().close();
  const admin = await page(scheme, lang);
  await login(admin, 'root', 'admin');
  await admin.getByTestId('nav-admin').click();
  await admin.waitForTimeout(800);
  await admin.shot('g-admin');
  await admin.context().close();
}

try {
  await tour('light', 'en', 1440, 900);
  await tour('dark', 'zh', 1440, 900);
  await tour('light', 'zh', 1024, 768);
  await tour('dark', 'en', 768, 1000);
  await trouble('light', 'en');
  await trouble('dark', 'zh');
} finally {
  await browser.close();
  mock.kill();
}
