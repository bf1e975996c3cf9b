import type { Root } from 'hast';

const DEADLINE_MILLIS = 5_000;

/** The part of a `Worker` that the parser uses. */
interface ParserWorker {
  postMessage: (text: string) => void;
  terminate: () => void;
  onmessage: ((event: MessageEvent<Root | null>) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
}

interface Task {
  text: string;
  signal: AbortSignal;
  resolve: (tree: Root | null) => void;
}

/**
 * Parses Markdown texts one after the other in a worker. A worker that needs more than 5 s for a
 * text is replaced, because the text of a model must not block the page.
 */
export class MarkdownParser {
  private worker: ParserWorker | undefined;
  private readonly waiting: Task[] = [];
  private isBusy = false;

  constructor(private readonly newWorker: () => ParserWorker) {}

  /** The tree of a text; null if it is too complex, or `signal` is aborted before it is parsed. */
  parse(text: string, signal: AbortSignal): Promise<Root | null> {
    return new Promise(resolve => {
      this.waiting.push({ text, signal, resolve });
      this.next();
    });
  }

  private next(): void {
    const task = this.isBusy ? undefined : this.waiting.shift();
    if (!task) {
      return;
    }
    if (task.signal.aborted) {
      task.resolve(null);
      this.next();
      return;
    }
    this.isBusy = true;
    const worker = (this.worker ??= this.newWorker());
    const end = (tree: Root | null, isBroken: boolean) => {
      clearTimeout(deadline);
      worker.onmessage = worker.onerror = null;
      if (isBroken) {
        worker.terminate();
        this.worker = undefined;
      }
      this.isBusy = false;
      task.resolve(tree);
      this.next();
    };
    const deadline = setTimeout(() => end(null, true), DEADLINE_MILLIS);
    worker.onerror = () => end(null, true);
    worker.onmessage = ({ data }) => end(data, false);
    worker.postMessage(task.text);
  }
}
