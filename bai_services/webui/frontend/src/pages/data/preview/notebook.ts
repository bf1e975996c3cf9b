import { MAX_OUTPUT_LINES } from '../../../components/ansi';

const MAX_CELLS = 500;
/** Maximum number of outputs of one cell. */
const MAX_OUTPUTS = 50;
// Limits of the whole notebook, because a larger preview makes the page slow.
const MAX_IMAGES = 100;
const MAX_CHARACTERS = 1_000_000;
/** Maximum number of page elements: cells, outputs, lines of outputs, and styled parts of lines. */
const MAX_ELEMENTS = 20_000;

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

/**
 * Numbers of omitted cells, outputs and characters. `characters` does not include the text of
 * omitted cells and outputs.
 */
export interface Omitted {
  cells: number;
  outputs: number;
  characters: number;
}

export interface Notebook {
  cells: NotebookCell[];
  omitted: Omitted;
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

/** Applies the limits to the parts of a notebook, and counts what they exclude. */
class Budget {
  readonly omitted: Omitted = { cells: 0, outputs: 0, characters: 0 };
  private characters = MAX_CHARACTERS;
  private elements = MAX_ELEMENTS;
  private images = MAX_IMAGES;

  get isSpent(): boolean {
    return this.characters <= 0 || this.elements <= 0;
  }

  /** The beginning of a source, as far as it fits into the limits. */
  source(text: string): string {
    this.elements -= 1;
    return this.beginning(text, text.length);
  }

  /** The outputs of a cell that fit into the limits. */
  outputs(outputs: readonly Json[]): NotebookOutput[] {
    const shown: NotebookOutput[] = [];
    for (const output of outputs) {
      if (shown.length >= MAX_OUTPUTS || this.isSpent) {
        this.omitted.outputs += 1;
        continue;
      }
      const { image, text = '' } = outputOf(output);
      this.elements -= 1;
      if (image === undefined) {
        shown.push({ text: this.beginning(text, this.endOfLines(text)) });
      } else if (this.images > 0) {
        this.images -= 1;
        shown.push({ image });
      } else {
        this.omitted.outputs += 1;
      }
    }
    return shown;
  }

  private beginning(text: string, end: number): string {
    const shown = text.slice(0, Math.min(end, this.characters));
    this.characters -= shown.length;
    this.omitted.characters += text.length - shown.length;
    return shown;
  }

  /**
   * The index at which the part of `text` that fits ends. Each line feed and each escape sequence
   * counts as one element, because an escape sequence can start a styled part.
   */
  private endOfLines(text: string): number {
    let lines = 0;
    // eslint-disable-next-line no-control-regex
    for (const { 0: found, index } of text.matchAll(/[\n\u001b]/g)) {
      lines += found === '\n' ? 1 : 0;
      this.elements -= 1;
      if (lines >= MAX_OUTPUT_LINES || this.elements <= 0) {
        return index + 1;
      }
    }
    return text.length;
  }
}

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
  const budget = new Budget();
  const cells: NotebookCell[] = [];
  for (const cell of found) {
    if (cells.length >= MAX_CELLS || budget.isSpent) {
      budget.omitted.cells += 1;
      continue;
    }
    const type = cell['cell_type'];
    const count = cell['execution_count'];
    const outputs = Array.isArray(cell['outputs']) ? (cell['outputs'] as unknown[]) : [];
    cells.push({
      type: type === 'markdown' || type === 'code' ? type : 'raw',
      source: budget.source(textOf(cell['source'])),
      count: typeof count === 'number' ? count : null,
      outputs: budget.outputs(outputs.filter(isObject))
    });
  }
  return { cells, omitted: budget.omitted };
}
