import type { Element, Root } from 'hast';
import remarkGfm from 'remark-gfm';
import remarkParse from 'remark-parse';
import remarkRehype from 'remark-rehype';
import { unified } from 'unified';

/** Maximum number of elements and texts of a preview: a larger number makes the page slow. */
const MAX_NODES = 20_000;
/** Maximum depth of nested elements: React renders them recursively. */
const MAX_DEPTH = 100;
/** Matches the URLs that a link may have. Any other, such as `javascript:`, is removed. */
const ALLOWED_LINK = /^(https?:|mailto:|[^:]*([/?#]|$))/i;

const processor = unified()
  .use(remarkParse)
  .use(remarkGfm)
  // HTML becomes a node of the type `raw`, which `restrict` converts to text.
  .use(remarkRehype, { allowDangerousHtml: true })
  .freeze();

/**
 * Parse Markdown texts to trees of elements without HTML. Return null if the trees have too many or
 * too deeply nested elements. Some hostile texts take long: call this in a worker with a deadline.
 */
export function parseMarkdown(texts: readonly string[]): Root[] | null {
  let nodes = 0;
  const trees = [];
  for (const text of texts) {
    const tree = processor.runSync(processor.parse(text));
    nodes += restrict(tree);
    if (nodes > MAX_NODES) {
      return null;
    }
    trees.push(tree);
  }
  return trees;
}

/**
 * Replace each HTML node by a text node that shows its source, and remove unsafe links. Return the
 * number of nodes of the tree, or Infinity if the tree is nested too deeply.
 */
function restrict(tree: Root): number {
  let count = 0;
  // Not recursive: a deep tree would overflow the stack.
  let level: (Root | Element)[] = [tree];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_DEPTH) {
      return Infinity;
    }
    const next: Element[] = [];
    for (const parent of level) {
      count += parent.children.length;
      parent.children.forEach((child, index) => {
        if (child.type === 'raw') {
          parent.children[index] = { type: 'text', value: child.value };
        } else if (child.type === 'element') {
          removeUnsafeLink(child);
          next.push(child);
        }
      });
    }
    level = next;
  }
  return count;
}

function removeUnsafeLink({ properties }: Element) {
  if (typeof properties.href === 'string' && !ALLOWED_LINK.test(properties.href)) {
    delete properties.href;
  }
}
