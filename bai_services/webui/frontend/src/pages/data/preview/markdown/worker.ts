/**
 * Worker of `useMarkdown`: parses Markdown texts into hast trees. Each worker receives one message
 * and is then terminated.
 */
import { parseMarkdown } from './parse';

onmessage = ({ data }: MessageEvent<readonly string[]>) => postMessage(parseMarkdown(data));
