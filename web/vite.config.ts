import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// `npm run dev` serves the page with hot reload and passes everything of the api on to LAB_WEB
// (a running stack, or the mock of dev/mock.mjs).
const stack = process.env['LAB_WEB'] ?? 'http://127.0.0.1:4180';

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // The page is served under a strict Content-Security-Policy: nothing may be inlined as data: or script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    host: '127.0.0.1',
    port: 5173,
    proxy: { '/api': { target: stack, ws: true, changeOrigin: false } },
  },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
});
