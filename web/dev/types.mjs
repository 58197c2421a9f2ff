/**
 * `npm run types -- URL-or-FILE`: the api's OpenAPI document to `src/lib/openapi.d.ts`, against which
 * `src/lib/contract.ts` checks the hand-written types at compile time.
 */
import { spawnSync } from 'node:child_process';

const source = process.argv[2] ?? `${process.env.LAB_WEB ?? 'http://127.0.0.1:8080'}/openapi.json`;
const done = spawnSync('npx', ['openapi-typescript', source, '-o', 'src/lib/openapi.d.ts'], {
  stdio: 'inherit',
  cwd: new URL('..', import.meta.url),
});
process.exit(done.status ?? 1);
