import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Plugin } from 'vite';

const PACKAGE = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const LICENCE_FILE = /^licen[cs]e/i;

interface Manifest {
  name?: string;
  version?: string;
  license?: string;
}

/**
 * Write the names, versions and licences of all bundled packages to `third-party-licenses.json`, in
 * the format of JupyterLab's builder. Use the result for the main build and for workers.
 */
export function licences(): { main: Plugin; worker: Plugin } {
  const folders = new Set<string>();
  const collect: Pick<Plugin, 'moduleParsed'> = {
    moduleParsed({ id }) {
      const folder = PACKAGE.exec(id)?.[0];
      if (folder) {
        folders.add(folder);
      }
    }
  };
  return {
    main: {
      name: 'licences',
      apply: 'build',
      ...collect,
      async generateBundle() {
        const packages = await Promise.all([...folders].sort().map(factsOf));
        this.emitFile({
          type: 'asset',
          fileName: 'third-party-licenses.json',
          source: JSON.stringify({ packages: packages.filter(each => each.name !== '') })
        });
      }
    },
    worker: { name: 'licences-of-workers', apply: 'build', ...collect }
  };
}

async function factsOf(folder: string) {
  const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as Manifest;
  const file = (await readdir(folder)).find(name => LICENCE_FILE.test(name));
  return {
    name: manifest.name ?? '',
    versionInfo: manifest.version ?? '',
    licenseId: manifest.license ?? '',
    extractedText: file ? await readFile(join(folder, file), 'utf8') : ''
  };
}
