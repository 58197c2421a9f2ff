import type { Session } from './api.ts';

/** A newer snapshot replaces an older one; a check's answer that is ahead of both stays. */
export function merge(old: Session | null, fresh: Session): Session {
  if (!old || old.id !== fresh.id) return fresh;
  if (fresh.version < old.version) return old;
  const checks = new Map(fresh.checks.map((check) => [check.step, check]));
  for (const check of old.checks) {
    const its = checks.get(check.step);
    if (!its || Date.parse(its.at) < Date.parse(check.at)) checks.set(check.step, check);
  }
  return { ...fresh, checks: [...checks.values()].sort((a, b) => a.step - b.step) };
}
