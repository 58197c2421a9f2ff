/** Debian's Chromium for screenshots and tests, with the flags that keep it quiet on a closed network. */
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

const NAMES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

export async function launch() {
  const executablePath = process.env.LAB_CHROMIUM ?? NAMES.find((name) => existsSync(name));
  if (!executablePath) throw new Error('no Chromium found: install the package chromium or set LAB_CHROMIUM');
  return chromium.launch({
    executablePath,
    headless: true,
    args: [
      // The browser runs as root in build machines; it only ever opens pages of this project.
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--disable-dev-shm-usage',
    ],
  });
}
