import { describe, expect, it } from 'vitest';
import { parse } from '../src/lib/route.ts';
import { merge } from '../src/lib/merge.ts';
import type { Check, Session } from '../src/lib/api.ts';

const check = (step: number, outcome: Check['outcome'], at: string): Check => ({ step, outcome, at, output: '', exit_code: 0, truncated: false, cause: null, auto: false });
const session = (version: number, checks: Check[] = [], id = 's'): Session => ({ id, version, checks }) as unknown as Session;

describe('snapshots', () => {
  it('never go back to an older version', () => {
    const new_ = session(7);
    expect(merge(new_, session(6))).toBe(new_);
    expect(merge(new_, session(8)).version).toBe(8);
  });

  it('keep the answer of a check that they do not know yet', () => {
    const old = session(7, [check(1, 'passed', '2026-12-01T12:00:05Z')]);
    const fresh = session(7, [check(1, 'failed', '2026-12-01T12:00:01Z'), check(2, 'failed', '2026-12-01T12:00:02Z')]);
    expect(merge(old, fresh).checks.map((c) => c.outcome)).toEqual(['passed', 'failed']);
  });

  it('of another session replace everything', () => {
    expect(merge(session(9, [check(1, 'passed', '2026-12-01T12:00:05Z')]), session(1, [], 't')).checks).toEqual([]);
  });
});

describe('addresses', () => {
  it('name the page', () => {
    expect(['/', '/labs/a-b', '/sessions/1', '/admin', '/what/ever'].map((p) => parse(p).name)).toEqual(['labs', 'lab', 'session', 'admin', 'labs']);
  });
});
