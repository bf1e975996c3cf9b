import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';

const COMPRESSED = /\.(m?js|css|svg|json)$/;

/** Write a gzip and a brotli variant beside each `COMPRESSED` file; the manager serves them. */
function precompress(directory: string): Plugin {
  return {
    name: 'precompress',
    apply: 'build',
    async closeBundle() {
      const files = await readdir(directory, { recursive: true });
      for (const name of files.filter(file => COMPRESSED.test(file))) {
        const path = join(directory, name);
        const content = await readFile(path);
        await writeFile(`${path}.gz`, gzipSync(content, { level: 9 }));
        const params = { [constants.BROTLI_PARAM_QUALITY]: 9 };
        await writeFile(`${path}.br`, brotliCompressSync(content, { params }));
      }
    }
  };
}

export default defineConfig({
  // The manager sets <base>: the UI is built without knowing the hub's base URL.
  base: './',
  plugins: [react(), precompress(join(import.meta.dirname, '../dist'))],
  resolve: {
    alias: {
      // The package's variant for browsers needs a document; the Markdown worker has none.
      'decode-named-character-reference': join(
        import.meta.dirname,
        'node_modules/decode-named-character-reference/index.js'
      )
    }
  },
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'es2022',
    // Inline data URLs would need an exception in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false }
  }
});
