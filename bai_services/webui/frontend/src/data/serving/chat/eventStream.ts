/** Maximum number of characters of one event; the answer of a model is untrusted input. */
export const MAX_EVENT_CHARACTERS = 1_000_000;

/** Parses server-sent events piece by piece; only the field `data` is kept. */
export class EventParser {
  private rest = '';
  private data: string[] = [];
  private size = 0;
  /** Whether the last piece ended with a carriage return, which a line feed may follow. */
  private hadReturn = false;

  /**
   * Add the next piece of the stream. Return the data of the events that it completes.
   *
   * @throws RangeError if an unfinished event has more than `MAX_EVENT_CHARACTERS` characters
   */
  push(piece: string): string[] {
    let text = piece;
    if (this.hadReturn && text.startsWith('\n')) {
      text = text.slice(1);
    }
    if (piece !== '') {
      this.hadReturn = piece.endsWith('\r');
    }
    const lines = text.split(/\r\n|\r|\n/);
    lines[0] = this.rest + (lines[0] ?? '');
    this.rest = lines.pop() ?? '';
    const events = lines.flatMap(line => this.endLine(line));
    if (this.size + this.rest.length > MAX_EVENT_CHARACTERS) {
      throw new RangeError('an event of the stream is too large');
    }
    return events;
  }

  private endLine(line: string): string[] {
    if (line === '') {
      const event = this.data.length > 0 ? [this.data.join('\n')] : [];
      this.data = [];
      this.size = 0;
      return event;
    }
    const match = /^data(?:: ?([^]*))?$/.exec(line);
    if (match) {
      const value = match[1] ?? '';
      this.size += value.length + 1; // and a line break
      this.data.push(value);
    }
    return [];
  }
}
