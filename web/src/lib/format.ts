/** Durations in the two forms of the page: exact and short ("12.4 s", "1:05") and spoken ("42 minutes"). */

/** For something that is going on or was measured: `0.8 s`, `12.4 s`, `1:05`, `1:02:03`. */
export function stopwatch(ms: number): string {
  if (ms < 60_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  return countdown(ms);
}

/** For time left: `4:09`, `59:59`, `1:00:00`. Rounded up, so that it shows 0:00 only when it is over. */
export function countdown(ms: number): string {
  const all = Math.max(0, Math.ceil(ms / 1000));
  const s = String(all % 60).padStart(2, '0');
  const m = Math.floor(all / 60) % 60;
  const h = Math.floor(all / 3600);
  return h > 0 ? `${h}:${String(m).padStart(2, '0')}:${s}` : `${m}:${s}`;
}

export function minutes(seconds: number): number {
  return Math.max(1, Math.round(seconds / 60));
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${Math.round(count / 1024)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

/** The time of day of an event, as the browser's locale writes it. */
export function timeOfDay(at: string, lang: string): string {
  return new Date(at).toLocaleTimeString(lang === 'zh' ? 'zh-CN' : 'en-GB');
}
