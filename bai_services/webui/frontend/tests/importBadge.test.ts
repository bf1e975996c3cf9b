import { expect, test } from 'vitest';
import { htmlBadge, linkOf, markdownBadge } from '../src/pages/import/badge';

const ADDRESS = 'https://hub.example.org/services/bai/import';

test('the link has the given fields of the source', () => {
  const source = { repo: 'https://example.org/a b.git', branch: '', path: 'x/y (1).ipynb' };
  const link = linkOf(source, ADDRESS);
  expect(link).not.toMatch(/[() ]/);
  const query = new URL(link).searchParams;
  expect([...query.keys()]).toEqual(['repo', 'path']);
  expect(query.get('path')).toBe('x/y (1).ipynb');
});

test('a badge cannot contain other markup', () => {
  expect(htmlBadge('https://a/?b=1&c="', '<b>')).toBe(
    '<a href="https://a/?b=1&#38;c=&#34;">&#60;b&#62;</a>'
  );
  expect(markdownBadge('https://a/', 'Open in [x]')).toBe('[Open in \\[x\\]](https://a/)');
});
