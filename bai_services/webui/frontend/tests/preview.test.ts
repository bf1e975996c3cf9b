import { expect, test } from 'vitest';
import { parseCsv } from '../src/components/list/csvText';
import { kindOf, lineSeparatorOf, textOf } from '../src/pages/data/preview/kinds';
import { cellsOf, type Notebook } from '../src/pages/data/preview/notebook';

const bytes = (text: string) => new TextEncoder().encode(text);

test('the kind of a file follows from its extension', () => {
  expect(['a.PNG', 'b.ipynb', 'c.md', 'd.tsv', 'e.pdf', 'f.py', 'pdf', '.csv'].map(kindOf)).toEqual(
    ['image', 'notebook', 'markdown', 'table', 'pdf', 'text', 'text', 'table']
  );
});

test('binary data is not text, and an incomplete character at the end of a part is dropped', () => {
  expect(textOf(bytes('ab'), false)).toBe('ab');
  expect(textOf(new Uint8Array([97, 0, 98]), false)).toBeNull();
  expect(textOf(new Uint8Array([0xff, 0xfe]), false)).toBeNull();
  const cut = bytes('한글').slice(0, 4);
  expect(textOf(cut, false)).toBeNull();
  expect(textOf(cut, true)).toBe('한');
});

test('the byte order mark is kept, and the line separator is detected', () => {
  expect(textOf(bytes('\uFEFFa'), false)).toBe('\uFEFFa');
  expect(lineSeparatorOf('a\r\nb\r\n')).toBe('\r\n');
  expect(lineSeparatorOf('a\r\nb\n')).toBe('\n');
  expect(lineSeparatorOf('\na\r\n')).toBe('\n');
  expect(lineSeparatorOf('')).toBe('\n');
});

test('only the first rows of a table are read', () => {
  const rows = parseCsv('a\tb\n1\t"2\t3"\nbroken"', '\t', 2);
  expect(rows.map(({ cells }) => cells)).toEqual([
    ['a', 'b'],
    ['1', '2\t3']
  ]);
});

test('the cells of a notebook are parsed', () => {
  const output = (data: object) => ({ output_type: 'display_data', data });
  const notebook = {
    cells: [
      { cell_type: 'markdown', source: ['# T', 'itle'] },
      {
        cell_type: 'code',
        source: 'print(1)',
        execution_count: 3,
        outputs: [
          { output_type: 'stream', text: ['1', '\n'] },
          output({ 'image/png': 'aGk=\n', 'text/plain': '<Figure>' }),
          output({ 'image/png': '"><script>', 'text/plain': 'plain' }),
          { output_type: 'error', traceback: ['E1', 'E2'] },
          null
        ]
      },
      { cell_type: 'unknown', source: 7 },
      'no cell'
    ]
  };
  expect(cellsOf(JSON.stringify(notebook))).toEqual({
    omitted: { cells: 0, outputs: 0, characters: 0 },
    cells: [
      { type: 'markdown', source: '# Title', count: null, outputs: [] },
      {
        type: 'code',
        source: 'print(1)',
        count: 3,
        outputs: [
          { text: '1\n' },
          { image: 'data:image/png;base64,aGk=' },
          { text: 'plain' },
          { text: 'E1\nE2' }
        ]
      },
      { type: 'raw', source: '', count: null, outputs: [] }
    ]
  });
});

const code = (...outputs: object[]) => ({ cell_type: 'code', source: 'x', outputs });
const stream = (text: string) => ({ output_type: 'stream', text });
const image = { output_type: 'display_data', data: { 'image/png': 'aGk=' } };
const preview = (...cells: object[]) => {
  const found = cellsOf(JSON.stringify({ cells }));
  expect(found).not.toBeNull();
  return found as Notebook;
};

test('a notebook shows a limited number of cells, outputs and images', () => {
  const many = preview(...Array<object>(503).fill({}));
  expect([many.cells.length, many.omitted]).toEqual([500, { cells: 3, outputs: 0, characters: 0 }]);
  const outputs = preview(code(...Array<object>(53).fill(stream('1'))));
  expect(outputs.omitted).toEqual({ cells: 0, outputs: 3, characters: 0 });
  const images = preview(...Array<object>(52).fill(code(image, image, stream('1'))));
  expect(images.cells.flatMap(cell => cell.outputs).filter(output => output.image)).toHaveLength(
    100
  );
  expect(images.omitted).toEqual({ cells: 0, outputs: 4, characters: 0 });
});

test('a notebook shows a limited number of characters, lines and styles', () => {
  const line = `${'x'.repeat(999)}\n`;
  const long = preview(code(stream(line.repeat(900))), code(stream(line.repeat(200))), code());
  expect(long.cells.map(cell => cell.outputs.map(output => output.text?.length))).toEqual([
    [900_000],
    [99_998]
  ]);
  expect(long.omitted).toEqual({ cells: 1, outputs: 0, characters: 100_002 });

  const styled = '\u001b[1mx\u001b[0my\n'.repeat(600);
  const colourful = preview(...Array<object>(20).fill(code(stream(styled), stream(styled))));
  const shown = colourful.cells.flatMap(cell => cell.outputs.map(output => output.text ?? ''));
  // eslint-disable-next-line no-control-regex
  const elements = shown.join('').match(/[\n\u001b]/g)?.length ?? 0;
  expect(elements).toBeLessThanOrEqual(20_000);
  expect(elements).toBeGreaterThan(19_000);
  expect(colourful.omitted.cells + colourful.cells.length).toBe(20);

  // An output has at most 1,000 lines.
  const lines = preview(code(stream('x\n'.repeat(1500))));
  expect(lines.omitted).toEqual({ cells: 0, outputs: 0, characters: 1000 });
});

test.each(['', '{', '[]', 'null', '{"cells": 1}'])('%s is not a notebook', text => {
  expect(cellsOf(text)).toBeNull();
});
