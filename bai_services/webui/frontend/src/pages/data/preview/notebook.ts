const MAX_CELLS = 500;
const MAX_OUTPUTS = 50;

export interface NotebookOutput {
  /** Base64 of a PNG or JPEG image, as a data URL. */
  image?: string;
  text?: string;
}

export interface NotebookCell {
  type: 'markdown' | 'code' | 'raw';
  source: string;
  count: number | null;
  outputs: NotebookOutput[];
}

export interface Notebook {
  cells: NotebookCell[];
  /** Whether the notebook has more cells than these. */
  isCut: boolean;
}

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A text of a notebook: a string, or a list of lines. */
function textOf(value: unknown): string {
  const lines: unknown[] = Array.isArray(value) ? value : [value];
  return lines.filter(line => typeof line === 'string').join('');
}

const BASE64 = /^[A-Za-z0-9+/=\s]+$/;

function outputOf(output: Json): NotebookOutput {
  if (output['output_type'] === 'stream') {
    return { text: textOf(output['text']) };
  }
  if (output['output_type'] === 'error') {
    const traceback = Array.isArray(output['traceback']) ? output['traceback'] : [];
    return { text: traceback.filter(line => typeof line === 'string').join('\n') };
  }
  const data = isObject(output['data']) ? output['data'] : {};
  for (const type of ['image/png', 'image/jpeg']) {
    const image = textOf(data[type]);
    if (BASE64.test(image)) {
      return { image: `data:${type};base64,${image.replaceAll(/\s/g, '')}` };
    }
  }
  return { text: textOf(data['text/plain']) };
}

/** Parse the cells of a notebook (nbformat 4); null if the text is not a notebook. */
export function cellsOf(text: string): Notebook | null {
  let notebook: unknown;
  try {
    notebook = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isObject(notebook) || !Array.isArray(notebook['cells'])) {
    return null;
  }
  const found = (notebook['cells'] as unknown[]).filter(isObject);
  const cells = found.slice(0, MAX_CELLS).map((cell): NotebookCell => {
    const type = cell['cell_type'];
    const count = cell['execution_count'];
    const outputs = Array.isArray(cell['outputs']) ? (cell['outputs'] as unknown[]) : [];
    return {
      type: type === 'markdown' || type === 'code' ? type : 'raw',
      source: textOf(cell['source']),
      count: typeof count === 'number' ? count : null,
      outputs: outputs.filter(isObject).slice(0, MAX_OUTPUTS).map(outputOf)
    };
  });
  return { cells, isCut: found.length > MAX_CELLS };
}
