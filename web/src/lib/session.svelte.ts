/**
 * The student's session, kept up to date and honest about its age.
 *
 * Two triggers, one path: pushed events, and a poll that does not trust them (every 20 s while events flow,
 * every few seconds while they do not). Whatever arrives goes through `#take`, which never goes back to an older
 * version. `lostSince` is set from the first failed contact until the next good one, and the page shows it.
 */
import { api, problemOf, type Check, type Problem, type Session } from './api.ts';
import { clock } from './clock.ts';
import { account } from './me.svelte.ts';
import { merge } from './merge.ts';
import { isOver } from './phases.ts';
import { refusal } from './refusal.svelte.ts';
import { router } from './router.svelte.ts';
import { time } from './time.svelte.ts';

const POLL_MS = 20_000;
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 10_000;
/** A poll that is ahead of the events by this long means that the events are stuck. */
const BEHIND_MS = 3_000;

class Live {
  session = $state.raw<Session | null>(null);
  /** Browser time of the first failed contact, null while all is well. */
  lostSince = $state<number | null>(null);
  /** A session that cannot be shown: not found, not ours. */
  problem = $state.raw<Problem | null>(null);
  /** Steps whose check is running. */
  checking = $state.raw<readonly number[]>([]);
  busy = $state<'start' | 'extend' | 'end' | null>(null);

  #id: string | null = null;
  #source: EventSource | null = null;
  #pushed = -1;
  #timer: number | undefined;
  #retry = FIRST_RETRY_MS;
  #subscribeAt = 0;

  constructor() {
    addEventListener('online', () => void this.#poll());
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) void this.#poll();
    });
  }

  /** The session that this user has now, if any. */
  async loadCurrent(): Promise<Session | null> {
    try {
      const session = await api.current();
      this.follow(session);
      return session;
    } catch (error) {
      const code = problemOf(error).code;
      if (code === 'unauthorized') await account.expired();
      else if (code === 'no_session' || code === 'not_found') this.leave();
      else throw error;
      return null;
    }
  }

  async open(id: string): Promise<void> {
    if (this.#id === id) return;
    this.leave();
    this.#id = id;
    await this.#poll();
  }

  follow(session: Session): void {
    if (this.#id !== session.id) {
      this.leave();
      this.#id = session.id;
    }
    this.#take(session);
    this.#schedule();
  }

  leave(): void {
    this.#id = null;
    this.#subscribeAt = 0;
    this.#close();
    clearTimeout(this.#timer);
    this.session = null;
    this.problem = null;
    this.lostSince = null;
    this.checking = [];
  }

  async start(lab: string): Promise<void> {
    this.busy = 'start';
    try {
      const session = await api.start(lab);
      refusal.clear();
      this.follow(session);
      router.go(`/sessions/${session.id}`);
    } catch (error) {
      this.#refused(error, () => void this.start(lab));
    } finally {
      this.busy = null;
    }
  }

  async extend(): Promise<boolean> {
    return this.#act('extend', (id) => api.extend(id));
  }

  async end(): Promise<boolean> {
    return this.#act('end', (id) => api.end(id));
  }

  async check(step: number, auto: boolean): Promise<void> {
    const id = this.#id;
    if (!id || this.checking.includes(step)) return;
    this.checking = [...this.checking, step];
    try {
      const check = await api.check(id, step, auto);
      if (this.#id === id) this.#record(check);
    } catch (error) {
      // A check that the page made by itself fails by itself: it is tried again anyway.
      if (!auto) this.#refused(error, () => void this.check(step, false));
    } finally {
      this.checking = this.checking.filter((n) => n !== step);
    }
  }

  async #act(what: 'extend' | 'end', call: (id: string) => Promise<Session>): Promise<boolean> {
    const id = this.#id;
    if (!id) return false;
    this.busy = what;
    try {
      this.#take(await call(id));
      refusal.clear();
      return true;
    } catch (error) {
      this.#refused(error, () => void (what === 'extend' ? this.extend() : this.end()));
      return false;
    } finally {
      this.busy = null;
    }
  }

  #refused(error: unknown, retry: () => void): void {
    const problem = problemOf(error);
    const worthIt = ['network', 'capacity', 'session_ending', 'cluster_unknown', 'bus_unreachable', 'not_serving', 'unavailable', 'internal'];
    refusal.show(error, worthIt.includes(problem.code) ? retry : null);
    if (problem.code === 'unauthorized') void account.expired();
    else void this.#poll();
  }

  #record(check: Check): void {
    const session = this.session;
    if (!session) return;
    this.session = { ...session, checks: [...session.checks.filter((c) => c.step !== check.step), check] };
  }

  #take(fresh: Session): void {
    if (fresh.id !== this.#id) return;
    time.tick();
    this.session = merge(this.session, fresh);
    this.problem = null;
    this.lostSince = null;
    if (isEnded(fresh)) {
      this.#close();
      clearTimeout(this.#timer);
    } else if (!this.#source && Date.now() >= this.#subscribeAt) {
      this.#subscribe(fresh.id);
    }
  }

  #subscribe(id: string): void {
    const source = new EventSource(api.events(id));
    this.#source = source;
    this.#pushed = -1;
    source.addEventListener('session', (event) => {
      const session = JSON.parse((event as MessageEvent<string>).data) as Session;
      clock.observePush(Date.parse(session.now), Date.now());
      this.#pushed = session.version;
      this.#take(session);
    });
    // The browser dials again by itself after a cut, but gives up for good after an HTTP error; the poll finds
    // out which it was, and subscribes anew.
    source.onerror = () => {
      if (this.#source !== source) return;
      if (source.readyState !== EventSource.CLOSED) {
        void this.#poll();
        return;
      }
      this.#close();
      this.#subscribeAt = Date.now() + this.#retry;
      this.#schedule();
    };
  }

  #close(): void {
    this.#source?.close();
    this.#source = null;
  }

  async #poll(): Promise<void> {
    const id = this.#id;
    if (!id || (this.session && isEnded(this.session))) return;
    try {
      const fresh = await api.session(id);
      if (this.#id !== id) return;
      this.#take(fresh);
      this.#watch(fresh);
    } catch (error) {
      if (this.#id !== id) return;
      const problem = problemOf(error);
      if (problem.code === 'unauthorized') await account.expired();
      else if (problem.code === 'not_found' || problem.code === 'forbidden') this.#vanished(problem);
      else this.lostSince ??= Date.now();
    }
    this.#schedule();
  }

  #vanished(problem: Problem): void {
    this.#close();
    this.session = null;
    this.problem = problem;
  }

  /** An open event stream that stays behind what the poll saw is stuck: open it anew. */
  #watch(fresh: Session): void {
    const source = this.#source;
    if (!source || this.#pushed >= fresh.version) return;
    setTimeout(() => {
      if (this.#source !== source || this.#pushed >= fresh.version) return;
      this.#close();
      if (this.session && !isEnded(this.session)) this.#subscribe(fresh.id);
    }, BEHIND_MS);
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    if (!this.#id || this.problem || (this.session && isEnded(this.session))) return;
    const flowing = this.lostSince === null && this.#source?.readyState === EventSource.OPEN;
    const ms = flowing ? POLL_MS : this.#retry;
    this.#retry = flowing ? FIRST_RETRY_MS : Math.min(LONGEST_RETRY_MS, this.#retry * 2);
    this.#timer = window.setTimeout(() => void this.#poll(), ms);
  }

  /** A session that a new start would collide with. */
  get isLive(): boolean {
    return this.session !== null && !isOver(this.session);
  }
}

function isEnded(session: Session): boolean {
  return session.state === 'ended';
}

export const live = new Live();
