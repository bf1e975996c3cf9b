import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Form } from './form';
import type { Translate } from './i18n';
import type { App } from './types';

/** Whether opening an app needs the form: a required argument is empty, or a path is temporary. */
export function needsArguments(app: App): boolean {
  return app.arguments.some(each => (each.is_required && !each.value) || each.is_temporary);
}

/** Show a form for the arguments of an app and return their values; null if the user cancels. */
export async function promptForArguments(
  app: App,
  t: Translate,
  problem = ''
): Promise<Record<string, string> | null> {
  const title = t('start-app', { name: app.title });
  const body = new ArgumentForm(title, app, problem, t);
  const result = await showDialog({
    title,
    body,
    buttons: [Dialog.cancelButton({ label: t('cancel') }), Dialog.okButton({ label: t('start') })]
  });
  return result.button.accept ? body.values : null;
}

class ArgumentForm extends Form {
  readonly values: Record<string, string>;

  constructor(
    title: string,
    private readonly app: App,
    private readonly problem: string,
    private readonly t: Translate
  ) {
    super(title);
    this.values = Object.fromEntries(app.arguments.map(each => [each.name, each.value]));
  }

  protected override render(): React.ReactElement {
    return (
      <>
        {this.problem && (
          <p className="bai-Problem" role="alert">
            {this.problem}
          </p>
        )}
        {this.app.arguments.some(each => each.is_temporary) && (
          <p className="bai-Hint" id="bai-Form-temporary">
            {this.t('temporary-path')}
          </p>
        )}
        {this.app.arguments.map(each => (
          <label key={each.name}>
            {each.title}
            <input
              className="jp-mod-styled"
              defaultValue={each.value}
              required={each.is_required}
              spellCheck={false}
              aria-describedby={each.is_temporary ? 'bai-Form-temporary' : undefined}
              onChange={event => {
                this.values[each.name] = event.target.value;
              }}
            />
          </label>
        ))}
      </>
    );
  }
}
