import { describe, expect, it } from 'vitest';
import { asProblem, type Problem } from '../src/lib/api.ts';
import { CODES, tell } from '../src/lib/problems.ts';
import { reasons } from '../src/lib/reasons.ts';
import { words } from '../src/lib/words.ts';

const HAN = /\p{Script=Han}/u;
const NOW = Date.parse('2026-12-01T12:00:00Z');

describe('words', () => {
  it.each(CODES)('tells what %s means and what to do, in both languages', (code) => {
    const en = tell({ code }, 'en', NOW);
    const zh = tell({ code }, 'zh', NOW);
    for (const text of [en.title, en.next]) expect(text.length > 3 && !HAN.test(text)).toBe(true);
    for (const text of [zh.title, zh.next]) expect(HAN.test(text)).toBe(true);
  });

  it('says when the next place is expected, and how many there are', () => {
    const problem: Problem = { code: 'capacity', used: 8, cap: 8, expected_at: '2026-12-01T12:04:07Z' };
    expect(tell(problem, 'en', NOW).title).toContain('8 of 8');
    expect(tell(problem, 'en', NOW).next).toContain('4:07');
    expect(tell({ ...problem, expected_at: '2026-12-01T11:00:00Z' }, 'zh', NOW).next).not.toContain('0:00');
  });

  it('shows the words of the server for a code that it does not know', () => {
    expect(tell({ code: 'new_one', title: 'Something new', next: 'Do this' }, 'zh', NOW)).toEqual({ title: 'Something new', next: 'Do this' });
  });

  it('has a text for each reason of an end, in both languages', () => {
    expect(Object.keys(reasons.zh)).toEqual(Object.keys(reasons.en));
    for (const one of Object.values(reasons.zh)) expect(HAN.test(one.title + one.text + one.next)).toBe(true);
  });

  it('leaves no sentence untranslated', () => {
    const same = (a: unknown, b: unknown, path: string): string[] => {
      if (typeof a === 'string') return a !== '' && a === b ? [path] : [];
      if (typeof a !== 'object' || a === null) return [];
      return Object.entries(a).flatMap(([key, value]) => same(value, (b as Record<string, unknown>)[key], `${path}.${key}`));
    };
    expect(same(words.en, words.zh, '')).toEqual([]);
  });
});

describe('refusals without a problem document', () => {
  it('are told from each other', () => {
    expect(asProblem(502, null).code).toBe('network');
    expect(asProblem(401, null).code).toBe('unauthorized');
    expect(asProblem(500, '<html>').code).toBe('unexpected');
    expect(asProblem(503, { code: 'cluster_unknown' }).code).toBe('cluster_unknown');
  });
});
