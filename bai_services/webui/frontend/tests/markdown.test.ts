import type { Element, ElementContent } from 'hast';
import { expect, test } from 'vitest';
import { parseMarkdown } from '../src/pages/data/preview/markdown/parse';

/** The elements of the only paragraph of a text. */
function elementsOf(text: string): ElementContent[] {
  const [tree] = parseMarkdown([text]) ?? [];
  expect(tree?.children).toHaveLength(1);
  return (tree?.children[0] as Element).children;
}

const hrefOf = (link: string) =>
  (elementsOf(`[text](${link})`)[0] as Element).properties.href as unknown;

test('only links to web pages, mail addresses and paths keep their address', () => {
  const kept = ['https://a.org/x:y', 'HTTP://a.org', 'mailto:a@b.org', '/a:b', 'a', '#a:b', '?a:b'];
  expect(kept.map(hrefOf)).toEqual(kept);
  const removed = ['javascript:alert(1)', 'JavaScript:a', 'data:text/html,x', '&#106;avascript:a'];
  expect(removed.map(hrefOf)).toEqual(removed.map(() => undefined));
});

test('HTML becomes text', () => {
  expect(elementsOf('a <b onclick="x">c</b>')).toMatchObject(
    ['a ', '<b onclick="x">', 'c', '</b>'].map(value => ({ type: 'text', value }))
  );
});

test('texts with too many or too deeply nested elements are rejected', () => {
  expect(parseMarkdown(['> '.repeat(90) + 'a'])).toHaveLength(1);
  expect(parseMarkdown(['> '.repeat(110) + 'a'])).toBeNull();
  const half = 'a\n\n'.repeat(4000);
  expect(parseMarkdown([half])).toHaveLength(1);
  expect(parseMarkdown([half, half])).toBeNull();
});
