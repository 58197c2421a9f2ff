import { describe, expect, it } from 'vitest';
import { Clock } from '../src/lib/clock.ts';
import { countdown, stopwatch } from '../src/lib/format.ts';

describe('clock', () => {
  it('knows the skew from one answer', () => {
    const clock = new Clock();
    clock.observe(100_050, 0, 100);
    expect(clock.serverNow(1_000)).toBe(101_000);
  });

  it('prefers the answer with the shorter way', () => {
    const clock = new Clock();
    clock.observe(100_010, 0, 20);
    clock.observe(101_500, 1_000, 2_500);
    expect(clock.serverNow(0)).toBe(100_000);
  });

  it('lets a push correct it only to the side that a delay cannot explain', () => {
    const clock = new Clock();
    clock.observe(100_050, 0, 100);
    clock.observePush(100_700, 1_000);
    expect(clock.serverNow(0)).toBe(100_000);
    clock.observePush(101_020, 1_000);
    expect(clock.serverNow(0)).toBe(100_020);
  });

  it('follows a clock that was set', () => {
    const clock = new Clock();
    clock.observe(100_005, 0, 10);
    clock.observe(500_100, 1_000, 1_200);
    expect(clock.serverNow(1_100)).toBe(500_100);
  });

  it('takes a time in whole seconds until it gets a better one', () => {
    const clock = new Clock();
    clock.observe(100_000, 0, 10, 1_000);
    expect(clock.serverNow(5)).toBe(100_500);
    clock.observe(100_910, 1_000, 1_020);
    clock.observe(103_000, 3_000, 3_010, 1_000);
    expect(clock.serverNow(1_010)).toBe(100_910);
  });

  it('ignores a time that is none', () => {
    const clock = new Clock();
    clock.observe(Number.NaN, 0, 10);
    expect(clock.serverNow(7)).toBe(7);
  });
});

describe('durations', () => {
  it('shows tenths below a minute and a clock above', () => {
    expect([0, 949, 12_440, 59_999, 65_000, 3_723_000].map(stopwatch)).toEqual(['0.0 s', '0.9 s', '12.4 s', '59.9 s', '1:05', '1:02:03']);
  });

  it('shows 0:00 only when nothing is left', () => {
    expect([0, 1, 59_001, 3_600_000].map(countdown)).toEqual(['0:00', '0:01', '1:00', '1:00:00']);
  });
});
