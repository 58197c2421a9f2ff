/** "Now" on the server's clock, as a value that components can depend on. */
import { clock } from './clock.ts';

const TICK_MS = 200;

class Time {
  now = $state(clock.serverNow());

  constructor() {
    setInterval(() => this.tick(), TICK_MS);
    // A tab in the background ticks rarely: correct what it shows the moment it is looked at again.
    document.addEventListener('visibilitychange', () => this.tick());
  }

  /** Also called when something new came, or a full hour would show as 1:00:01 for a moment. */
  tick(): void {
    this.now = clock.serverNow();
  }
}

export const time = new Time();
