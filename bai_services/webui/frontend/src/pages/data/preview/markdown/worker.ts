/** The worker of `useMarkdown`: it receives the texts once, and answers with their trees. */
import { parseMarkdown } from './parse';

onmessage = ({ data }: MessageEvent<readonly string[]>) => postMessage(parseMarkdown(data));
