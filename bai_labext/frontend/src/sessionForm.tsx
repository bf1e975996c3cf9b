import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { ApiError } from './api';
import { Form } from './form';
import { amount } from './format';
import type { UserClient } from './userClient';
import { problemsOf, type Problems } from './problems';
import { portsProblem, splitWords, type PortLimits } from './ports';
import type { Translate } from './i18n';
import type { OtherSession, Session } from './types';

/** The request fields in the form, in the order of the form. */
const FIELDS = ['name', 'project', 'resource_group', 'image', 'preset', 'preopen_ports'] as const;
type Field = (typeof FIELDS)[number];
const LABELS: Record<Field, string> = {
  name: 'name',
  project: 'project',
  resource_group: 'resource-group',
  image: 'image',
  preset: 'preset',
  preopen_ports: 'ports'
};
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

/** The values of the form. For an empty field, a value is chosen automatically. */
interface Values {
  name: string;
  project: string;
  resource_group: string;
  preset: string;
  image: string;
}

/**
 * Show the form of a new session and create the session; return null if the user cancels.
 *
 * `template` is the session whose project, resource group and image the form proposes.
 */
export async function startSession(
  template: Session | null,
  client: UserClient,
  formUrl: string,
  t: Translate
): Promise<OtherSession | null> {
  const body = new StartForm(template, client, formUrl, t);
  await body.load();
  for (;;) {
    const result = await showDialog({
      title: t('new-session'),
      body,
      buttons: [Dialog.cancelButton({ label: t('cancel') }), Dialog.okButton({ label: t('start') })]
    });
    if (!result.button.accept) {
      return null;
    }
    try {
      const created = await body.create();
      if (created) {
        return created;
      }
    } catch (error) {
      // Store the problems; the loop then shows the form again, with the same values.
      const message = error instanceof Error ? error.message : String(error);
      const details = error instanceof ApiError ? error.details : {};
      body.problems = problemsOf(message, details, FIELDS);
    }
  }
}

type FieldAttributes = Pick<
  React.HTMLAttributes<HTMLElement>,
  'id' | 'aria-invalid' | 'aria-describedby' | 'autoFocus'
>;

const idOf = (field: Field): string => `bai-Form-field-${field}`;

class StartForm extends Form {
  problems: Problems = {};
  private options: Options | null = null;
  private values: Values;
  private ports = '';

  constructor(
    template: Session | null,
    private readonly client: UserClient,
    private readonly formUrl: string,
    private readonly t: Translate
  ) {
    super(t('new-session'));
    this.values = {
      name: '',
      project: template?.project ?? '',
      resource_group: template?.resource_group ?? '',
      preset: '',
      image: template?.image ?? ''
    };
  }

  /** Load the options for the selected project and resource group. */
  async load(): Promise<void> {
    const { project, resource_group } = this.values;
    const query = new URLSearchParams(
      Object.entries({ project, resource_group }).filter(([, value]) => value)
    );
    const options = await this.client.get<Options>(`/sessions/options?${query.toString()}`);
    this.options = options;
    const valueOrFirst = (value: string, choices: { name: string }[]): string =>
      choices.some(({ name }) => name === value) ? value : (choices[0]?.name ?? '');
    this.values = {
      ...this.values,
      project: options.project ?? '',
      resource_group: options.resource_group ?? '',
      image: valueOrFirst(this.values.image, options.images),
      preset: valueOrFirst(
        this.values.preset || (options.presets.find(preset => preset.allocatable)?.name ?? ''),
        options.presets
      )
    };
    this.update();
  }

  /** Create the session; return null if `problems` must be corrected first. */
  async create(): Promise<OtherSession | null> {
    const { name, ...rest } = this.values;
    const ports = splitWords(this.ports);
    const problem = this.options && portsProblem(ports, this.options.preopen_limits);
    this.problems = {
      ...(name && !NAME.test(name) ? { name: this.t('name-rule') } : {}),
      ...(problem ? { preopen_ports: this.t(problem.key, problem.values) } : {})
    };
    if (Object.keys(this.problems).length) {
      return null;
    }
    const filledIn = Object.fromEntries(Object.entries(rest).filter(([, value]) => value));
    return this.client.post<OtherSession>('/sessions', {
      ...filledIn,
      preopen_ports: ports.map(Number),
      name: name || `lab-${Date.now().toString(36)}`
    });
  }

  protected override render(): React.ReactElement {
    const { options, values, t } = this;
    const set = (change: Partial<Values>): void => {
      this.values = { ...this.values, ...change };
      Object.keys(change).forEach(field => this.clearProblem(field));
      this.update();
    };
    if (!options) {
      return <p className="bai-Hint">{t('loading')}</p>;
    }
    const setAndReload = (change: Partial<Values>): void => {
      set(change);
      void this.load();
    };
    return (
      <>
        {this.summary()}
        <label>
          {t('name')}
          <input
            className="jp-mod-styled"
            {...this.attributes('name')}
            value={values.name}
            placeholder={t('chosen-automatically')}
            onChange={event => set({ name: event.target.value })}
          />
        </label>
        {this.problemText('name')}
        <Choice
          attributes={this.attributes('project')}
          label={t('project')}
          value={values.project}
          options={options.projects.map(({ name, id }) => [id, name])}
          onChange={project => setAndReload({ project })}
        />
        {this.problemText('project')}
        <Choice
          attributes={this.attributes('resource_group')}
          label={t('resource-group')}
          value={values.resource_group}
          options={options.resource_groups.map(({ name }) => [name, name])}
          onChange={group => setAndReload({ resource_group: group })}
        />
        {this.problemText('resource_group')}
        <Choice
          attributes={this.attributes('image')}
          label={t('image')}
          value={values.image}
          options={options.images.map(({ name }) => [name, name])}
          onChange={image => set({ image })}
        />
        {this.problemText('image')}
        <Choice
          attributes={this.attributes('preset')}
          label={t('preset')}
          value={values.preset}
          options={options.presets.map(preset => [preset.name, this.presetText(preset)])}
          onChange={preset => set({ preset })}
        />
        {this.problemText('preset')}
        <label>
          {t('ports')}
          <input
            className="jp-mod-styled"
            value={this.ports}
            placeholder="8501, 9000"
            {...this.attributes('preopen_ports', 'bai-Form-ports')}
            onChange={event => {
              this.ports = event.target.value;
              this.clearProblem('preopen_ports');
              this.update();
            }}
          />
        </label>
        {this.problemText('preopen_ports')}
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

  /** List of the problems in the order of the fields, each with a link to its field. */
  private summary(): React.ReactElement | null {
    const { t, problems } = this;
    const invalidFields = FIELDS.filter(field => problems[field]);
    if (!invalidFields.length) {
      return problems[''] ? (
        <p className="bai-Problem" role="alert">
          {problems['']}
        </p>
      ) : null;
    }
    return (
      <div className="bai-Problem" role="alert">
        {t('to-correct')}
        <ul>
          {problems[''] && <li>{problems['']}</li>}
          {invalidFields.map(field => (
            <li key={field}>
              <a
                href={`#${idOf(field)}`}
                onClick={event => {
                  event.preventDefault();
                  this.node.querySelector<HTMLElement>(`#${idOf(field)}`)?.focus();
                }}
              >
                {t(LABELS[field])}
              </a>
              : {problems[field]}
            </li>
          ))}
        </ul>
      </div>
    );
  }

  /** Attributes that mark an invalid field; the first invalid field gets the focus. */
  private attributes(field: Field, hint?: string): FieldAttributes {
    const isInvalid = Boolean(this.problems[field]);
    const describedBy = [isInvalid ? `${idOf(field)}-problem` : '', hint].filter(Boolean).join(' ');
    return {
      id: idOf(field),
      'aria-invalid': isInvalid || undefined,
      'aria-describedby': describedBy || undefined,
      autoFocus: isInvalid && field === FIELDS.find(each => this.problems[each])
    };
  }

  private problemText(field: Field): React.ReactElement | null {
    const problem = this.problems[field];
    return problem ? (
      <p className="bai-Problem" id={`${idOf(field)}-problem`}>
        {problem}
      </p>
    ) : null;
  }

  private clearProblem(field: string): void {
    this.problems = Object.fromEntries(
      Object.entries(this.problems).filter(([each]) => each !== field)
    );
  }

  private presetText(preset: Options['presets'][number]): string {
    const amounts = Object.entries(preset.resources)
      .map(([slot, text]) => `${slot} ${amount(slot, text)}`)
      .join(', ');
    const now = preset.allocatable ? '' : ` — ${this.t('would-be-queued')}`;
    return `${preset.name} (${amounts})${now}`;
  }
}

function Choice(props: {
  label: string;
  attributes: FieldAttributes;
  value: string;
  options: [string, string][];
  onChange: (value: string) => void;
}): React.ReactElement {
  const { label, attributes, value, options, onChange } = props;
  if (options.length === 0) {
    return <></>;
  }
  return (
    <label>
      {label}
      <select {...attributes} value={value} onChange={event => onChange(event.target.value)}>
        {options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
