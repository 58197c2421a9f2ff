/**
 * `npm run types [-- URL-or-FILE]`: the api's OpenAPI document to `src/lib/openapi.d.ts`, against which
 * `src/lib/contract.ts` checks the hand-written types at compile time. Without an argument it takes the copy that
 * the api's own tests hold to be true.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import openapiTS, { astToString } from 'openapi-typescript';

export const SNAPSHOT = new URL('../../services/api/tests/it/openapi.snap', import.meta.url);
export const TYPES = new URL('../src/lib/openapi.d.ts', import.meta.url);

const HEAD = `/** Made by \`npm run types\` from the api's description. Do not edit. */\n\n`;

/** The types for a description; a snapshot file has a head of its own in front of the JSON. */
export async function typesOf(text) {
  const description = JSON.parse(text.slice(text.indexOf('\n{') + 1));
  // Names of operations are not used here, and only some makers of descriptions keep them unique.
  for (const path of Object.values(description.paths)) {
    for (const operation of Object.values(path)) delete operation.operationId;
  }
  return HEAD + astToString(await openapiTS(description));
}

async function main(source) {
  const read = (name) => readFileSync(new URL(name, pathToFileURL(`${process.cwd()}/`)), 'utf8');
  const text = /^https?:/.test(source) ? `\n${await (await fetch(source)).text()}` : `\n${read(source)}`;
  writeFileSync(TYPES, await typesOf(text));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) await main(process.argv[2] ?? SNAPSHOT.href);
