import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { KernelMessage } from '@jupyterlab/services';

/** The variables of one kernel that were saved before the session was stopped. */
export interface SavedKernel {
  /** Path of the notebook that used the kernel. */
  path: string;
  folder: string;
  saved: string[];
  skipped: string[];
}

/** The line that restores the variables; users can also run it in a cell. */
export function restoreLine(kernel: SavedKernel): string {
  return `%run -i ~/.bai/${kernel.folder}/restore.py`;
}

/** Restore the variables of a notebook in its current kernel; return what the kernel printed. */
export async function restoreVariables(app: JupyterFrontEnd, kernel: SavedKernel): Promise<string> {
  const widget = (await app.commands.execute('docmanager:open', { path: kernel.path })) as {
    context?: DocumentRegistry.Context;
  } | null;
  const context: ISessionContext | undefined = widget?.context?.sessionContext;
  await context?.ready;
  const connection = context?.session?.kernel;
  if (!connection) {
    throw new Error(kernel.path);
  }
  const future = connection.requestExecute({
    code: restoreLine(kernel),
    store_history: false,
    allow_stdin: false
  });
  let printed = '';
  future.onIOPub = (message: KernelMessage.IIOPubMessage): void => {
    if (message.header.msg_type === 'stream') {
      printed += (message.content as { text: string }).text;
    }
  };
  const reply = await future.done;
  if (reply.content.status !== 'ok') {
    throw new Error(printed || kernel.path);
  }
  return printed.trim();
}
