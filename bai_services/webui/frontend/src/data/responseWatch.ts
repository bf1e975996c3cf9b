/** Calls `onSilence` if a request has been pending for `millis` and no response has arrived. */
export class ResponseWatch {
  private pending = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly millis: number,
    private readonly onSilence: () => void
  ) {}

  /** Record that a request was sent. */
  sent(): void {
    this.pending += 1;
    this.timer ??= this.start();
  }

  /** Record the end of a request: by a response, a cancellation or a failure. */
  ended(hasResponse: boolean): void {
    this.pending -= 1;
    if (hasResponse || this.pending === 0) {
      clearTimeout(this.timer);
      this.timer = this.pending > 0 ? this.start() : undefined;
    }
  }

  private start() {
    return setTimeout(() => {
      this.timer = undefined;
      this.onSilence();
    }, this.millis);
  }
}
