import { MainAreaWidget } from '@jupyterlab/apputils';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { parseAnsi, plain, withoutOverwritten } from './ansi';
import type { Api } from './api';
import { Button } from './button';
import { withoutServerLog } from './serverLog';
import type { Translate } from './i18n';
import type { Log } from './types';

const INTERVAL_MILLISECONDS = 3000;
const MAX_BACKOFF_MILLISECONDS = 30_000;

/** Source of output: a kernel of the session, or an app. */
export interface Source {
  key: string;
  title: string;
  /** Whether the source can prefix each line with a timestamp. */
  canShowTimes: boolean;
  read: (cursor: string, hasTimes: boolean) => Promise<Log>;
}

/** The output of the selected source, polled while the log is visible and *Follow* is on. */
class LogModel {
  text = '';
  problem = '';
  isLive = true;
  isFollowed = true;
  hasTimes = false;
  /** Whether the output includes the log of the session's Jupyter server. */
  hasServerLog = false;
  source: Source;
  readonly changed = new Signal<this, void>(this);
  private cursor = '';
  private readonly poll: Poll;

  constructor(
    readonly sources: Source[],
    first: Source
  ) {
    this.source = first;
    this.poll = new Poll({
      auto: false,
      factory: () => this.read(),
      frequency: { interval: INTERVAL_MILLISECONDS, backoff: true, max: MAX_BACKOFF_MILLISECONDS },
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
    this.restart();
  }

  showTimes(hasTimes: boolean): void {
    this.hasTimes = hasTimes;
    this.restart();
  }

  showServerLog(hasServerLog: boolean): void {
    this.hasServerLog = hasServerLog;
    this.changed.emit();
  }

  /** The lines to show, search and download. */
  get lines(): string[] {
    const lines = withoutOverwritten(this.text).split('\n');
    return this.hasServerLog || !this.source.canShowTimes ? lines : withoutServerLog(lines, plain);
  }

  follow(isFollowed: boolean): void {
    this.isFollowed = isFollowed;
    this.changed.emit();
    if (isFollowed) {
      void this.poll.refresh();
    }
  }

  private restart(): void {
    Object.assign(this, { text: '', cursor: '', problem: '' });
    this.changed.emit();
    void this.poll.refresh();
  }

  private async read(): Promise<void> {
    const { source, hasTimes } = this;
    try {
      const response = await source.read(this.cursor, hasTimes);
      if (source !== this.source || hasTimes !== this.hasTimes) {
        return; // the user has selected another source or option in the meantime
      }
      this.text = response.is_more ? this.text + response.log : response.log;
      this.cursor = response.cursor ?? '';
      this.isLive = response.is_live ?? true;
      this.problem = '';
    } catch (error) {
      // Keep the output; the poll retries.
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
    // Start here, because `onAfterShow` is not called for a widget that is visible when attached.
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

/** Create a main area widget for logs that first shows the source with this key. */
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

/** Return a source for each kernel and each app. */
export function sourcesOf(
  api: Api,
  kernels: string[],
  apps: { name: string; title: string }[]
): Source[] {
  return [
    ...kernels.map(name => ({
      key: `kernel:${name}`,
      title: name,
      canShowTimes: true,
      read: (cursor: string, hasTimes: boolean): Promise<Log> => api.log(name, cursor, hasTimes)
    })),
    ...apps.map(app => ({
      key: `app:${app.name}`,
      title: app.title,
      canShowTimes: false,
      read: (): Promise<Log> => api.appLog(app.name)
    }))
  ];
}

function View({ model, t }: { model: LogModel; t: Translate }): React.ReactElement {
  const [query, setQuery] = React.useState('');
  const output = React.useRef<HTMLPreElement>(null);
  const lines = model.lines;
  const matching = query ? lines.filter(line => matches(plain(line), query)) : lines;
  React.useEffect(() => {
    if (model.isFollowed && output.current) {
      output.current.scrollTop = output.current.scrollHeight;
    }
  }, [model.text, model.isFollowed, query]);
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
        <Checkbox
          label={t('follow')}
          isChecked={model.isFollowed}
          onChange={isChecked => model.follow(isChecked)}
        />
        {model.source.canShowTimes && (
          <>
            <Checkbox
              label={t('times')}
              isChecked={model.hasTimes}
              onChange={isChecked => model.showTimes(isChecked)}
            />
            <Checkbox
              label={t('server-log')}
              isChecked={model.hasServerLog}
              onChange={isChecked => model.showServerLog(isChecked)}
            />
          </>
        )}
        <input
          type="search"
          value={query}
          placeholder={t('search')}
          aria-label={t('search')}
          onChange={event => setQuery(event.target.value)}
        />
        <span className="bai-Hint" role="status">
          {query ? t('lines-found', { count: matching.length }) : ''}
          {!model.isLive && t('log-ended')}
        </span>
        <Button label={t('download')} onClick={() => download(model)} />
      </div>
      {model.problem && (
        <p className="bai-Notice" role="status">
          {t('log-error', { message: model.problem })}
        </p>
      )}
      <pre ref={output} className="bai-Log" tabIndex={0} aria-label={model.source.title}>
        {!lines.join('').trim() && !model.problem && t('log-empty')}
        {query ? (
          <MatchingLines lines={matching} query={query} />
        ) : (
          <ColouredText text={lines.join('\n')} />
        )}
      </pre>
    </>
  );
}

function Checkbox(props: {
  label: string;
  isChecked: boolean;
  onChange: (isChecked: boolean) => void;
}): React.ReactElement {
  const { label, isChecked, onChange } = props;
  return (
    <label>
      <input
        type="checkbox"
        checked={isChecked}
        onChange={event => onChange(event.target.checked)}
      />
      {label}
    </label>
  );
}

function ColouredText({ text }: { text: string }): React.ReactElement {
  return (
    <>
      {parseAnsi(text).map((segment, i) =>
        segment.className ? (
          <span key={i} className={segment.className}>
            {segment.text}
          </span>
        ) : (
          segment.text
        )
      )}
    </>
  );
}

/** Lines without colors, each with its first match highlighted. */
function MatchingLines({ lines, query }: { lines: string[]; query: string }): React.ReactElement {
  return (
    <>
      {lines.map((line, i) => {
        const text = plain(line);
        const at = text.toLowerCase().indexOf(query.toLowerCase());
        return (
          <div key={i}>
            {text.slice(0, at)}
            <mark>{text.slice(at, at + query.length)}</mark>
            {text.slice(at + query.length)}
          </div>
        );
      })}
    </>
  );
}

function matches(line: string, query: string): boolean {
  return line.toLowerCase().includes(query.toLowerCase());
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
