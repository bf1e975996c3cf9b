import { expect, test } from 'vitest';
import { parseCsv } from '../src/components/list/csvText';
import { kindOf, lineSeparatorOf, textOf } from '../src/pages/data/preview/kinds';
import { cellsOf } from '../src/pages/data/preview/notebook';

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
    isCut: false,
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
  expect(cellsOf(JSON.stringify({ cells: Array(501).fill({}) }))?.isCut).toBe(true);
});

test.each(['', '{', '[]', 'null', '{"cells": 1}'])('%s is not a notebook', text => {
  expect(cellsOf(text)).toBeNull();
});
