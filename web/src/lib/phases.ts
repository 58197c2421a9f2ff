/**
 * From the timeline of facts to the phases that a student sees: what was done, how long it took, what the start
 * is waiting for right now. Pure: time comes in as an argument.
 *
 * A phase lasts from one boundary to the next. With several machines a boundary is passed when the last machine
 * has passed it. A higher fact implies the lower ones (they may come late or never), and machine times have whole
 * seconds while ours are finer, so boundaries are pulled forward: they never run backwards.
 *
 *   created --reserve-- provisioning --make-- provisioned --place-- scheduled --start-- running --boot-- agent --prepare-- ready
 */
import type { Session, TimelineEntry } from './api.ts';

export type PhaseKey = 'reserve' | 'make' | 'place' | 'start' | 'boot' | 'prepare';
export type Status = 'done' | 'active' | 'waiting' | 'failed';

export interface Phase {
  key: PhaseKey;
  status: Status;
  /** When it began and ended, in milliseconds of the server's clock; null while not there yet. */
  from: number | null;
  to: number | null;
  /** How long it took or has been going on. */
  ms: number | null;
}

export interface Progress {
  phases: Phase[];
  /** The phase that goes on now or at whose time the start failed. */
  current: PhaseKey | null;
  /** From the request until ready, until the end, or until now. */
  totalMs: number;
}

/** Each phase and the fact that ends it. The order is the rank. */
const ENDED_BY: readonly (readonly [PhaseKey, string])[] = [
  ['reserve', 'provisioning'],
  ['make', 'provisioned'],
  ['place', 'scheduled'],
  ['start', 'running'],
  ['boot', 'agent'],
  ['prepare', 'ready'],
];

const RANK = new Map(ENDED_BY.map(([, fact], index) => [fact, index]));

export function isStarting(session: Session): boolean {
  return !['ready', 'ending', 'ended'].includes(session.state);
}

export function isOver(session: Session): boolean {
  return session.state === 'ending' || session.state === 'ended';
}

/** The first time of `phase`, not counting facts that came too late to matter. */
export function timeOf(session: Session, phase: string): number | null {
  const times = session.timeline.filter((e) => e.phase === phase && !e.late).map((e) => Date.parse(e.at));
  return times.length === 0 ? null : Math.min(...times);
}

export function progress(session: Session, now: number): Progress {
  const begun = timeOf(session, 'requested') ?? Date.parse(session.created_at);
  const stopped = isOver(session) ? (timeOf(session, 'ending') ?? timeOf(session, 'ended') ?? now) : null;
  const end = stopped ?? now;
  const passed = boundaries(session, begun);

  const phases: Phase[] = [];
  let from: number | null = begun;
  let current: PhaseKey | null = null;
  ENDED_BY.forEach(([key], index) => {
    const to: number | null = passed[index] ?? null;
    if (from !== null && to !== null) {
      phases.push({ key, status: 'done', from, to, ms: to - from });
    } else if (from !== null) {
      current = key;
      const ms = Math.max(0, end - from);
      phases.push({ key, status: stopped === null ? 'active' : 'failed', from, to: stopped, ms });
    } else {
      phases.push({ key, status: 'waiting', from: null, to: null, ms: null });
    }
    from = to;
  });
  const ready = passed[ENDED_BY.length - 1] ?? null;
  return { phases, current, totalMs: Math.max(0, (ready ?? end) - begun) };
}

/** When the last machine passed each boundary, or null; never before the boundary in front of it. */
function boundaries(session: Session, begun: number): (number | null)[] {
  const names = session.machines.length > 0 ? session.machines.map((m) => m.name) : [null];
  const entries = session.timeline.filter((e) => !e.late);
  let floor = begun;
  return ENDED_BY.map((_, rank) => {
    const perMachine = names.map((name) => reached(entries, name, rank));
    if (perMachine.some((at) => at === null)) return null;
    floor = Math.max(floor, ...(perMachine as number[]));
    return floor;
  });
}

/** When one machine reached `rank`: the first fact of that rank or higher, its own or the whole session's. */
function reached(entries: TimelineEntry[], machine: string | null, rank: number): number | null {
  let first: number | null = null;
  let firstRank = Number.POSITIVE_INFINITY;
  for (const entry of entries) {
    const its = RANK.get(entry.phase);
    if (its === undefined || its < rank) continue;
    if (entry.machine !== null && machine !== null && entry.machine !== machine) continue;
    const at = Date.parse(entry.at);
    if (its < firstRank || (its === firstRank && first !== null && at < first)) {
      first = at;
      firstRank = its;
    }
  }
  return first;
}

/** What is left until `deadline`, at least 0; null where there is none. */
export function left(deadline: string | null, now: number): number | null {
  return deadline === null ? null : Math.max(0, Date.parse(deadline) - now);
}

/** The idle warning comes this long before the end (DESIGN 3). */
export const IDLE_WARNING_MS = 5 * 60_000;
/** The time left is shown as short from here on. */
export const LIFE_WARNING_MS = 5 * 60_000;

export function idleWarning(session: Session, now: number): number | null {
  if (session.state !== 'ready') return null;
  const idle = left(session.idle_at, now);
  const life = left(session.expires_at, now);
  if (idle === null || idle > IDLE_WARNING_MS) return null;
  // Where the life ends first, the life is what to warn about.
  return life !== null && life <= idle ? null : idle;
}

/** Whether asking for more time can give any. */
export function canExtend(session: Session): boolean {
  if (session.state !== 'ready' || session.expires_at === null || session.extend_until === null) return false;
  return Date.parse(session.extend_until) - Date.parse(session.expires_at) > 1_000;
}
