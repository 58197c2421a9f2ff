import { describe, expect, it } from 'vitest';
import type { Session, TimelineEntry } from '../src/lib/api.ts';
import { canExtend, idleWarning, left, progress } from '../src/lib/phases.ts';

const T0 = Date.parse('2026-12-01T12:00:00Z');
const at = (s: number): string => new Date(T0 + s * 1000).toISOString();
const fact = (phase: string, s: number, machine: string | null = 'main', late = false): TimelineEntry => ({ phase, machine, at: at(s), late });

function session(more: Partial<Session> = {}): Session {
  return {
    id: 's', lab: 'l', runtime: 'vm', state: 'booting', reason: null, cause: null, message: null, log_tail: null,
    machines: [{ name: 'main', state: 'booting', disk: null, disk_reason: null }],
    timeline: [fact('requested', 0, null)], created_at: at(0), ready_at: null, start_deadline: null, expires_at: null,
    idle_at: null, extend_until: null, extend_step_s: 900, console_url: '/c', checks: [], version: 1, now: at(0), ...more,
  };
}

const shape = (s: Session, now: number) => progress(s, T0 + now * 1000).phases.map((p) => `${p.key} ${p.status} ${p.ms === null ? '-' : p.ms / 1000}`);

describe('progress', () => {
  it('waits in the first phase when nothing has happened yet', () => {
    expect(shape(session(), 3)).toEqual(['reserve active 3', 'make waiting -', 'place waiting -', 'start waiting -', 'boot waiting -', 'prepare waiting -']);
  });

  it('gives each phase its own time and counts on in the current one', () => {
    const s = session({ timeline: [fact('requested', 0, null), fact('provisioning', 1), fact('provisioned', 1.5), fact('scheduled', 4)] });
    expect(shape(s, 10).slice(0, 4)).toEqual(['reserve done 1', 'make done 0.5', 'place done 2.5', 'start active 6']);
    expect(progress(s, T0 + 10_000).current).toBe('start');
  });

  it('takes a higher fact for the lower ones that did not come', () => {
    const s = session({ timeline: [fact('requested', 0, null), fact('provisioning', 1), fact('agent', 9)] });
    expect(shape(s, 12)).toEqual(['reserve done 1', 'make done 8', 'place done 0', 'start done 0', 'boot done 0', 'prepare active 3']);
  });

  it('never runs backwards when whole-second times meet finer ones', () => {
    const s = session({ timeline: [fact('requested', 0, null), fact('provisioning', 0.2), fact('provisioned', 2.7), fact('scheduled', 2), fact('running', 3)] });
    expect(progress(s, T0 + 5000).phases.every((p) => p.ms === null || p.ms >= 0)).toBe(true);
    expect(shape(s, 5)[2]).toBe('place done 0');
  });

  it('waits for the slowest machine of several', () => {
    const machines = ['a', 'b'].map((name) => ({ name, state: 'booting' as const, disk: null, disk_reason: null }));
    const timeline = [fact('requested', 0, null), fact('provisioning', 1, 'a'), fact('provisioning', 3, 'b'), fact('provisioned', 4, 'a')];
    expect(shape(session({ machines, timeline }), 9).slice(0, 2)).toEqual(['reserve done 3', 'make active 6']);
  });

  it('marks the phase in which a start failed, and stops counting there', () => {
    const s = session({ state: 'ended', reason: 'agent_unreachable', timeline: [fact('requested', 0, null), fact('provisioning', 1), fact('provisioned', 2), fact('scheduled', 3), fact('running', 4), fact('ending', 154, null), fact('ended', 170, null)] });
    expect(shape(s, 900)[4]).toBe('boot failed 150');
    expect(shape(s, 900)[5]).toBe('prepare waiting -');
  });

  it('does not let a late fact count', () => {
    const s = session({ state: 'ending', timeline: [fact('requested', 0, null), fact('ending', 5, null), fact('ready', 6, 'main', true)] });
    expect(shape(s, 9)[0]).toBe('reserve failed 5');
  });

  it('keeps the start time of a ready session for good', () => {
    const s = session({ state: 'ready', timeline: [fact('requested', 0, null), fact('ready', 42)] });
    expect(progress(s, T0 + 900_000).totalMs).toBe(42_000);
    expect(progress(s, T0 + 900_000).current).toBeNull();
  });
});

describe('deadlines', () => {
  const ready = (idle: number, life: number, until = 7200) => session({ state: 'ready', idle_at: at(idle), expires_at: at(life), extend_until: at(until) });

  it('never shows less than nothing left', () => {
    expect(left(at(10), T0 + 99_000)).toBe(0);
    expect(left(null, T0)).toBeNull();
  });

  it('warns of idleness five minutes before, not earlier', () => {
    expect(idleWarning(ready(1800, 3600), T0 + 1_499_000)).toBeNull();
    expect(idleWarning(ready(1800, 3600), T0 + 1_501_000)).toBe(299_000);
  });

  it('does not warn of idleness where the life ends first', () => {
    expect(idleWarning(ready(1800, 1700), T0 + 1_600_000)).toBeNull();
  });

  it('offers more time only while there is some', () => {
    expect(canExtend(ready(1800, 3600))).toBe(true);
    expect(canExtend(ready(1800, 7200))).toBe(false);
    expect(canExtend(session())).toBe(false);
  });
});
