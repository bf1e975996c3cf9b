import i18next from 'i18next';
import { checkAccess } from './events';
import { currentConnection, onConnection } from './connection';

/** Wait until the server responds again; resolve at once if the connection is not lost. */
const connected = () =>
  new Promise<void>(resolve => {
    if (currentConnection().state !== 'lost') {
      resolve();
      return;
    }
    const unsubscribe = onConnection(() => {
      if (currentConnection().state !== 'lost') {
        unsubscribe();
        resolve();
      }
    });
  });

/**
 * Import a part of the UI. While the server cannot be reached, wait for it; the page shows the
 * caller's placeholder and the notice of the lost connection.
 *
 * @throws ScriptError if the server responds, but the import fails, for example because an upgrade
 * has removed the file
 */
export async function loadScript<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    await checkAccess();
    await connected();
    try {
      return await load();
    } catch (error) {
      throw new ScriptError(i18next.t('errors.script'), { cause: error });
    }
  }
}

/** A part of the UI cannot be imported until the page is loaded again. */
export class ScriptError extends Error {}
