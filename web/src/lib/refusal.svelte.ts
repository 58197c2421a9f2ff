/** The one refusal that the page shows, and what may be done about it. A new one replaces the old one. */
import { problemOf, type Problem } from './api.ts';

class Refusal {
  problem = $state.raw<Problem | null>(null);
  retry = $state.raw<(() => void) | null>(null);

  show(error: unknown, retry: (() => void) | null = null): void {
    this.problem = problemOf(error);
    this.retry = retry;
  }

  clear(): void {
    this.problem = null;
    this.retry = null;
  }
}

export const refusal = new Refusal();
