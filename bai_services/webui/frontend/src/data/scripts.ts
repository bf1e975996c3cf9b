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
 * @throws the error of the import if the server responds, for example after an upgrade has removed
 * the file
 */
export async function loadScript<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    await checkAccess();
    await connected();
    return await load();
  }
}
