import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Form } from './form';
import { amount } from './format';
import type { Person } from './person';
import { whyNotPorts, words, type PortLimits } from './ports';
import type { Translate } from './texts';
import type { OtherSession, Session } from './types';

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{2,62}[A-Za-z0-9]$/;

interface Options {
  projects: { id: string; name: string; domain: string }[];
  project: string | null;
  resource_groups: { name: string }[];
  resource_group: string | null;
  images: { name: string }[];
  presets: { name: string; resources: Record<string, string>; allocatable: boolean }[];
  preopen_limits: PortLimits;
}

/** What a new session is asked to be; empty texts are the manager's own choice. */
interface Wish {
  name: string;
  project: string;
  resource_group: string;
  preset: string;
  image: string;
}

/** Ask what a new session shall be and file it; null if the person thinks again. */
export async function startSession(
  like: Session | null,
  person: Person,
  formUrl: string,
  t: Translate
): Promise<OtherSession | null> {
  const body = new StartForm(like, person, formUrl, t);
  await body.load();
  for (;;) {
    const answer = await showDialog({
      title: t('new-session'),
      body,
      buttons: [Dialog.cancelButton({ label: t('cancel') }), Dialog.okButton({ label: t('start') })]
    });
    if (!answer.button.accept) {
      return null;
    }
    try {
      return await body.file();
    } catch (error) {
      // Shown in the form as it was filled in, not instead of it.
      body.problem = error instanceof Error ? error.message : String(error);
    }
  }
}

class StartForm extends Form {
  problem = '';
  private options: Options | null = null;
  private wish: Wish;
  private ports = '';

  constructor(
    like: Session | null,
    private readonly person: Person,
    private readonly formUrl: string,
    private readonly t: Translate
  ) {
    super(t('new-session'));
    this.wish = {
      name: '',
      project: like?.project ?? '',
      resource_group: like?.resource_group ?? '',
      preset: '',
      image: like?.image ?? ''
    };
  }

  /** Ask what there is to choose from, in the project and group that are chosen. */
  async load(): Promise<void> {
    const { project, resource_group } = this.wish;
    const query = new URLSearchParams(
      Object.entries({ project, resource_group }).filter(([, value]) => value)
    );
    const options = await this.person.get<Options>(`/sessions/options?${query.toString()}`);
    this.options = options;
    const kept = (value: string, of: { name: string }[]): string =>
      of.some(({ name }) => name === value) ? value : (of[0]?.name ?? '');
    this.wish = {
      ...this.wish,
      project: options.project ?? '',
      resource_group: options.resource_group ?? '',
      image: kept(this.wish.image, options.images),
      preset: kept(
        this.wish.preset || (options.presets.find(preset => preset.allocatable)?.name ?? ''),
        options.presets
      )
    };
    this.update();
  }

  async file(): Promise<OtherSession> {
    const { name, ...rest } = this.wish;
    if (name && !NAME.test(name)) {
      throw new Error(this.t('name-rule'));
    }
    const ports = words(this.ports);
    const refusal = this.options && whyNotPorts(ports, this.options.preopen_limits);
    if (refusal) {
      throw new Error(this.t(refusal.key, refusal.places));
    }
    const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value));
    return this.person.post<OtherSession>('/sessions', {
      ...given,
      preopen_ports: ports.map(Number),
      name: name || `lab-${Date.now().toString(36)}`
    });
  }

  protected override render(): React.ReactElement {
    const { options, wish, t } = this;
    const set = (change: Partial<Wish>): void => {
      this.wish = { ...this.wish, ...change };
      this.update();
    };
    if (!options) {
      return <p className="bai-Hint">{t('loading')}</p>;
    }
    const renew = (change: Partial<Wish>): void => {
      set(change);
      void this.load();
    };
    return (
      <>
        {this.problem && (
          <p className="bai-Problem" role="alert">
            {this.problem}
          </p>
        )}
        <label>
          {t('name')}
          <input
            className="jp-mod-styled"
            value={wish.name}
            placeholder={t('name-by-itself')}
            onChange={event => set({ name: event.target.value })}
          />
        </label>
        <Choice
          label={t('project')}
          value={wish.project}
          options={options.projects.map(({ name, id }) => [id, name])}
          onChange={project => renew({ project })}
        />
        <Choice
          label={t('resource-group')}
          value={wish.resource_group}
          options={options.resource_groups.map(({ name }) => [name, name])}
          onChange={group => renew({ resource_group: group })}
        />
        <Choice
          label={t('image')}
          value={wish.image}
          options={options.images.map(({ name }) => [name, name])}
          onChange={image => set({ image })}
        />
        <Choice
          label={t('preset')}
          value={wish.preset}
          options={options.presets.map(preset => [preset.name, this.presetText(preset)])}
          onChange={preset => set({ preset })}
        />
        <label>
          {t('ports')}
          <input
            className="jp-mod-styled"
            value={this.ports}
            placeholder="8501, 9000"
            aria-describedby="bai-Form-ports"
            onChange={event => {
              this.ports = event.target.value;
              this.update();
            }}
          />
        </label>
        <p className="bai-Hint" id="bai-Form-ports">
          {t('ports-hint')}
        </p>
        <p className="bai-Hint">
          {t('start-more')}{' '}
          <a href={this.formUrl} target="_blank" rel="noopener noreferrer">
            {t('start-form')}
          </a>
        </p>
      </>
    );
  }

  private presetText(preset: Options['presets'][number]): string {
    const amounts = Object.entries(preset.resources)
      .map(([slot, text]) => `${slot} ${amount(slot, text)}`)
      .join(', ');
    const now = preset.allocatable ? '' : ` — ${this.t('would-wait')}`;
    return `${preset.name} (${amounts})${now}`;
  }
}

function Choice(props: {
  label: string;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
}): React.ReactElement {
  const { label, value, options, onChange } = props;
  if (options.length === 0) {
    return <></>;
  }
  return (
    <label>
      {label}
      <select value={value} onChange={event => onChange(event.target.value)}>
        {options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
