import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
// @ts-expect-error -- a script without types
import { SNAPSHOT, TYPES, typesOf } from '../dev/types.mjs';

describe('the types made from the description of the api', () => {
  it.skipIf(!existsSync(SNAPSHOT))('are current (else: npm run types)', async () => {
    expect(readFileSync(TYPES, 'utf8')).toBe(await typesOf(`\n${readFileSync(SNAPSHOT, 'utf8')}`));
  });
});
