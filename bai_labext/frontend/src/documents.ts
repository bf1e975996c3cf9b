import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { Contents } from '@jupyterlab/services';

/** Time limit for a save; a slower one is probably waiting for the user, for example in a dialog. */
const SAVE_MILLISECONDS = 5000;
/** Folder for the content of documents that cannot be saved to their own files. */
const RESCUE_FOLDER = 'unsaved-documents';

type Context = DocumentRegistry.IContext<DocumentRegistry.IModel>;

export interface SavedDocuments {
  saved: string[];
  /** One entry per document: `path → copy` if a copy was saved, otherwise `path (reason)`. */
  unsaved: string[];
}

/** Save all changed documents of the page, including those in background tabs. */
export async function saveDocuments(app: JupyterFrontEnd): Promise<SavedDocuments> {
  const changed = changedContextsOf(app);
  const results: SavedDocuments = { saved: [], unsaved: [] };
  await Promise.all(changed.map(context => saveOne(app, context, results)));
  return results;
}

/** Whether a document of the page has changes that are not saved. */
export const hasChanges = (app: JupyterFrontEnd): boolean => changedContextsOf(app).length > 0;

const changedContextsOf = (app: JupyterFrontEnd): Context[] =>
  contextsOf(app).filter(context => context.model.dirty);

function contextsOf(app: JupyterFrontEnd): Context[] {
  const contexts = new Set<Context>();
  for (const widget of app.shell.widgets('main')) {
    const context = (widget as { context?: Context }).context;
    if (context?.model && typeof context.save === 'function') {
      contexts.add(context);
    }
  }
  return [...contexts];
}

async function saveOne(
  app: JupyterFrontEnd,
  context: Context,
  results: SavedDocuments
): Promise<void> {
  const { path } = context;
  try {
    await withTimeout(context.save(), SAVE_MILLISECONDS);
    if (!context.model.dirty) {
      results.saved.push(path);
      return;
    }
  } catch {
    // The file is read-only or was changed by another program, or the save timed out. Do not force the save; write a copy.
  }
  try {
    const copy = await saveCopy(app, context);
    results.unsaved.push(`${path} → ${copy}`);
  } catch (error) {
    results.unsaved.push(`${path} (${error instanceof Error ? error.message : String(error)})`);
  }
}

async function saveCopy(app: JupyterFrontEnd, context: Context): Promise<string> {
  const { contents } = app.serviceManager;
  await contents.save(RESCUE_FOLDER, { type: 'directory' });
  const stamp = new Date().toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '-');
  const name = context.path.split('/').at(-1) ?? 'document';
  const target = `${RESCUE_FOLDER}/${stamp}-${name}`;
  const isNotebook = context.contentsModel?.type === 'notebook';
  const options: Partial<Contents.IModel> = isNotebook
    ? { type: 'notebook', format: 'json', content: context.model.toJSON() }
    : { type: 'file', format: 'text', content: context.model.toString() };
  await withTimeout(contents.save(target, options), SAVE_MILLISECONDS);
  return target;
}

async function withTimeout<T>(work: Promise<T>, milliseconds: number): Promise<T> {
  const late = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error('timeout')), milliseconds);
  });
  return Promise.race([work, late]);
}
