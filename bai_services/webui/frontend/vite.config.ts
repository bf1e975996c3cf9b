import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';
import { licences } from './licences';

const COMPRESSED = /\.(m?js|css|svg|json)$/;
// The maximum quality and window give the smallest files that every browser decodes. The build
// takes about 10 s longer than with quality 9.
const BROTLI = {
  [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
  [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
  [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT
};

/** Write a gzip and a brotli variant of each `COMPRESSED` file; the manager serves them. */
function precompress(): Plugin {
  let directory = '';
  return {
    name: 'precompress',
    apply: 'build',
    configResolved(resolved) {
      directory = resolve(resolved.root, resolved.build.outDir);
    },
    async closeBundle() {
      const files = await readdir(directory, { recursive: true });
      for (const name of files.filter(file => COMPRESSED.test(file))) {
        const path = join(directory, name);
        const content = await readFile(path);
        await writeFile(`${path}.gz`, gzipSync(content, { level: 9 }));
        const params = { ...BROTLI, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
        await writeFile(`${path}.br`, brotliCompressSync(content, { params }));
      }
    }
  };
}

/** Omit the older font formats of KaTeX: every browser that is supported reads WOFF2. */
function onlyWoff2(): Plugin {
  return {
    name: 'only-woff2',
    enforce: 'pre',
    transform: (code, id) =>
      /katex.*\.css$/.test(id)
        ? code.replace(/,url\([^)]+\) format\("(?:woff|truetype)"\)/g, '')
        : undefined
  };
}

const bundled = licences();

export default defineConfig({
  // The manager sets <base>: the UI is built without knowing the hub's base URL.
  base: './',
  plugins: [react(), onlyWoff2(), bundled.main, precompress()],
  // Workers import KaTeX only if a text has formulas; dynamic imports need the module format.
  worker: { format: 'es', plugins: () => [bundled.worker] },
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
    modulePreload: { polyfill: false },
    rolldownOptions: {
      treeshake: {
        // AntD's dialogs and menus need only one React context of this package, but its index
        // imports the whole package.
        moduleSideEffects: [{ test: /@rc-component\/form\/es\/index/, sideEffects: false }]
      },
      output: {
        // The modules of the first page are in two files, because many small files compress worse.
        // The tag $initial ignores the rule above, so the first group excludes the form modules.
        codeSplitting: {
          includeDependenciesRecursively: false,
          groups: [
            {
              name: 'libraries',
              tags: ['$initial'],
              test: /node_modules\/(?!@rc-component\/(form\/es\/(?!FormContext)|async-validator))/
            },
            { name: 'first-page', tags: ['$initial'], test: /frontend\/src\// }
          ]
        }
      }
    }
  }
});
