import { MainAreaWidget } from '@jupyterlab/apputils';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { pieces, plain, settled } from './ansi';
import type { Api } from './api';
import { Button } from './button';
import { withoutServerLog } from './serverlog';
import type { Translate } from './texts';
import type { Log } from './types';

const INTERVAL_MILLISECONDS = 3000;
const MOST_MILLISECONDS = 30_000;

/** Source of output: a kernel of the session, or an app. */
export interface Source {
  key: string;
  title: string;
  /** Whether the time of each line is known. */
  keepsTimes: boolean;
  read: (mark: string, hasTimes: boolean) => Promise<Log>;
}

/** The output of a source, followed while it is visible. */
class LogModel {
  text = '';
  problem = '';
  isLive = true;
  isFollowed = true;
  hasTimes = false;
  /** Whether the log of the session's own server is shown beside the user's output. */
  hasServerLog = false;
  source: Source;
  readonly changed = new Signal<this, void>(this);
  private mark = '';
  private readonly poll: Poll;

  constructor(
    readonly sources: Source[],
    first: Source
  ) {
    this.source = first;
    this.poll = new Poll({
      auto: false,
      factory: () => this.look(),
      frequency: { interval: INTERVAL_MILLISECONDS, backoff: true, max: MOST_MILLISECONDS },
      standby: () => document.hidden || !this.isFollowed,
      linger: 0,
      name: 'bai-labext:log'
    });
  }

  start(): void {
    void this.poll.start();
    void this.poll.refresh();
  }

  stop(): void {
    void this.poll.stop();
  }

  dispose(): void {
    this.poll.dispose();
  }

  choose(key: string): void {
    this.source = this.sources.find(source => source.key === key) ?? this.source;
    this.renew();
  }

  showTimes(hasTimes: boolean): void {
    this.hasTimes = hasTimes;
    this.renew();
  }

  showServerLog(hasServerLog: boolean): void {
    this.hasServerLog = hasServerLog;
    this.changed.emit();
  }

  /** The lines that are shown, searched and downloaded. */
  get lines(): string[] {
    const lines = settled(this.text).split('\n');
    return this.hasServerLog || !this.source.keepsTimes ? lines : withoutServerLog(lines, plain);
  }

  follow(isFollowed: boolean): void {
    this.isFollowed = isFollowed;
    this.changed.emit();
    if (isFollowed) {
      void this.poll.refresh();
    }
  }

  private renew(): void {
    Object.assign(this, { text: '', mark: '', problem: '' });
    this.changed.emit();
    void this.poll.refresh();
  }

  private async look(): Promise<void> {
    const { source, hasTimes } = this;
    try {
      const found = await source.read(this.mark, hasTimes);
      if (source !== this.source || hasTimes !== this.hasTimes) {
        return;
      }
      this.text = found.is_more ? this.text + found.log : found.log;
      this.mark = found.mark ?? '';
      this.isLive = found.is_live ?? true;
      this.problem = '';
    } catch (error) {
      // Output read so far stays; reading is retried.
      this.problem = error instanceof Error ? error.message : String(error);
      throw error;
    } finally {
      this.changed.emit();
    }
  }
}

class LogView extends ReactWidget {
  constructor(
    private readonly model: LogModel,
    private readonly t: Translate
  ) {
    super();
    this.addClass('bai-LogView');
  }

  override dispose(): void {
    this.model.dispose();
    super.dispose();
  }

  protected override render(): React.ReactElement {
    return (
      <UseSignal signal={this.model.changed}>
        {() => <View model={this.model} t={this.t} />}
      </UseSignal>
    );
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    // A widget attached visibly is never "shown" afterwards.
    if (this.isVisible) {
      this.model.start();
    }
  }

  protected override onAfterShow(): void {
    this.model.start();
  }

  protected override onAfterHide(): void {
    this.model.stop();
  }
}

/** Create a main area with logs; it shows the one with that key first. */
export function logWidget(sources: Source[], key: string, t: Translate): MainAreaWidget {
  const first = sources.find(source => source.key === key) ?? sources[0];
  if (!first) {
    throw new Error('no log');
  }
  const content = new LogView(new LogModel(sources, first), t);
  const widget = new MainAreaWidget({ content });
  content.node.setAttribute('aria-label', t('log'));
  widget.id = 'bai-log';
  widget.title.label = t('log');
  widget.title.closable = true;
  return widget;
}

/** The output of a session's kernel, or of the app of that name. */
export function sourcesOf(
  api: Api,
  kernels: string[],
  apps: { name: string; title: string }[]
): Source[] {
  return [
    ...kernels.map(name => ({
      key: `kernel:${name}`,
      title: name,
      keepsTimes: true,
      read: (mark: string, hasTimes: boolean): Promise<Log> => api.log(name, mark, hasTimes)
    })),
    ...apps.map(app => ({
      key: `app:${app.name}`,
      title: app.title,
      keepsTimes: false,
      read: (): Promise<Log> => api.appLog(app.name)
    }))
  ];
}

function View({ model, t }: { model: LogModel; t: Translate }): React.ReactElement {
  const [sought, seek] = React.useState('');
  const output = React.useRef<HTMLPreElement>(null);
  const lines = model.lines;
  const found = sought ? lines.filter(line => holds(plain(line), sought)) : lines;
  React.useEffect(() => {
    if (model.isFollowed && output.current) {
      output.current.scrollTop = output.current.scrollHeight;
    }
  }, [model.text, model.isFollowed, sought]);
  return (
    <>
      <div className="bai-LogView-bar" role="toolbar" aria-label={t('log')}>
        {model.sources.length > 1 && (
          <label>
            {t('log-source')}
            <select value={model.source.key} onChange={event => model.choose(event.target.value)}>
              {model.sources.map(source => (
                <option key={source.key} value={source.key}>
                  {source.title}
                </option>
              ))}
            </select>
          </label>
        )}
        <label>
          <input
            type="checkbox"
            checked={model.isFollowed}
            onChange={event => model.follow(event.target.checked)}
          />
          {t('follow')}
        </label>
        {model.source.keepsTimes && (
          <label>
            <input
              type="checkbox"
              checked={model.hasTimes}
              onChange={event => model.showTimes(event.target.checked)}
            />
            {t('times')}
          </label>
        )}
        {model.source.keepsTimes && (
          <label>
            <input
              type="checkbox"
              checked={model.hasServerLog}
              onChange={event => model.showServerLog(event.target.checked)}
            />
            {t('server-log')}
          </label>
        )}
        <input
          type="search"
          value={sought}
          placeholder={t('search')}
          aria-label={t('search')}
          onChange={event => seek(event.target.value)}
        />
        <span className="bai-Hint" role="status">
          {sought ? t('lines-found', { count: found.length }) : ''}
          {!model.isLive && t('log-ended')}
        </span>
        <Button label={t('download')} onClick={() => download(model)} />
      </div>
      {model.problem && (
        <p className="bai-Notice" role="status">
          {t('log-trouble', { message: model.problem })}
        </p>
      )}
      <pre ref={output} className="bai-Log" tabIndex={0} aria-label={model.source.title}>
        {!lines.join('').trim() && !model.problem && t('log-empty')}
        {sought ? <Marked lines={found} sought={sought} /> : <Coloured text={lines.join('\n')} />}
      </pre>
    </>
  );
}

function Coloured({ text }: { text: string }): React.ReactElement {
  return (
    <>
      {pieces(text).map((piece, i) =>
        piece.className ? (
          <span key={i} className={piece.className}>
            {piece.text}
          </span>
        ) : (
          piece.text
        )
      )}
    </>
  );
}

function Marked({ lines, sought }: { lines: string[]; sought: string }): React.ReactElement {
  return (
    <>
      {lines.map((line, i) => {
        const text = plain(line);
        const at = text.toLowerCase().indexOf(sought.toLowerCase());
        return (
          <div key={i}>
            {text.slice(0, at)}
            <mark>{text.slice(at, at + sought.length)}</mark>
            {text.slice(at + sought.length)}
          </div>
        );
      })}
    </>
  );
}

function holds(line: string, sought: string): boolean {
  return line.toLowerCase().includes(sought.toLowerCase());
}

function download(model: LogModel): void {
  const url = URL.createObjectURL(
    new Blob([plain(model.lines.join('\n'))], { type: 'text/plain' })
  );
  const link = document.createElement('a');
  link.href = url;
  link.download = `${model.source.title}.log`;
  link.click();
  URL.revokeObjectURL(url);
}
