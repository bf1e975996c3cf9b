/** Worker of `MarkdownParser`: parses one text after the other. */
import { parseMarkdown } from '../../data/preview/markdown/parse';

onmessage = ({ data }: MessageEvent<string>) => {
  // The parser overflows its stack if a text is nested very deeply.
  try {
    postMessage(parseMarkdown([data])?.[0] ?? null);
  } catch {
    postMessage(null);
  }
};
