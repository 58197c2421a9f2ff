/**
 * What the operations page shows, looked at again every few seconds while it is open. Each part stands for itself:
 * one that cannot be had is named with its reason, the others are shown.
 */
import { api, problemOf, type Problem, type Session, type State } from './api.ts';
import { account } from './me.svelte.ts';
import { refusal } from './refusal.svelte.ts';

const LOOK_MS = 5_000;

export type AdminSession = Session & { owner: string };

export interface Capacity {
  cap: number;
  /** null while the cluster is unknown. */
  used: number | null;
  sessions: number;
  cluster: number | null;
}

export interface Ghost {
  uid: string;
  kind: string;
  name: string;
  session: string;
  machine: string;
  released: boolean;
}

export interface Ghosts {
  /** Too many at once: none is deleted until an administrator releases it. */
  hold: boolean;
  machines: number;
  ghosts: Ghost[];
}

export interface PhaseStat {
  lab: string;
  phase: string;
  count: number;
  p50_ms: number;
  p90_ms: number;
}

const ORDER: State[] = ['ready', 'preparing', 'booting', 'provisioning', 'requested', 'queued', 'ending', 'ended'];

class Admin {
  sessions = $state.raw<AdminSession[] | null>(null);
  capacity = $state.raw<Capacity | null>(null);
  ghosts = $state.raw<Ghosts | null>(null);
  stats = $state.raw<PhaseStat[]>([]);
  problems = $state.raw<Partial<Record<'sessions' | 'capacity' | 'ghosts' | 'stats', Problem>>>({});
  at = $state<number | null>(null);

  /** Looks until the answer is called. */
  watch(): () => void {
    const look = (): void => {
      if (!document.hidden) void this.look();
    };
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }

  async look(): Promise<void> {
    await Promise.all([
      this.#part('sessions', (answer) => {
        this.sessions = (answer as { sessions: AdminSession[] }).sessions.sort(
          (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || Date.parse(b.created_at) - Date.parse(a.created_at),
        );
      }),
      this.#part('capacity', (answer) => (this.capacity = answer as Capacity)),
      this.#part('ghosts', (answer) => (this.ghosts = answer as Ghosts)),
      this.#part('stats', (answer) => (this.stats = (answer as { phases: PhaseStat[] }).phases)),
    ]);
  }

  async end(id: string): Promise<void> {
    await this.#do(() => api.adminEnd(id));
  }

  async release(uids: string[]): Promise<void> {
    await this.#do(() => api.adminRelease(uids));
  }

  async #part(what: 'sessions' | 'capacity' | 'ghosts' | 'stats', take: (answer: unknown) => void): Promise<void> {
    try {
      take(await api.adminGet<unknown>(what));
      this.at = Date.now();
      const { [what]: _, ...rest } = this.problems;
      this.problems = rest;
    } catch (error) {
      const problem = problemOf(error);
      this.problems = { ...this.problems, [what]: problem };
      if (problem.code === 'unauthorized') await account.expired();
    }
  }

  async #do(call: () => Promise<unknown>): Promise<void> {
    try {
      await call();
      refusal.clear();
    } catch (error) {
      refusal.show(error);
    }
    await this.look();
  }
}

export const admin = new Admin();
