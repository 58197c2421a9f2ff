/** "Now" on the server's clock, as a value that components can depend on. */
import { clock } from './clock.ts';

const TICK_MS = 200;

class Time {
  now = $state(clock.serverNow());

  constructor() {
    const tick = (): void => {
      this.now = clock.serverNow();
    };
    setInterval(tick, TICK_MS);
    // A tab in the background ticks rarely: correct what it shows the moment it is looked at again.
    document.addEventListener('visibilitychange', tick);
  }
}

export const time = new Time();
