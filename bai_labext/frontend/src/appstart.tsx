import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Form } from './form';
import type { Translate } from './texts';
import type { App } from './types';

/** Ask what an app is to be started with; null if the person thinks again. */
export async function askArguments(
  app: App,
  t: Translate,
  problem = ''
): Promise<Record<string, string> | null> {
  const title = t('start-app', { name: app.title });
  const body = new ArgumentForm(title, app, problem);
  const answer = await showDialog({
    title,
    body,
    buttons: [Dialog.cancelButton({ label: t('cancel') }), Dialog.okButton({ label: t('start') })]
  });
  return answer.button.accept ? body.values : null;
}

class ArgumentForm extends Form {
  readonly values: Record<string, string>;

  constructor(
    title: string,
    private readonly app: App,
    private readonly problem: string
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
        {this.app.arguments.map(each => (
          <label key={each.name}>
            {each.title}
            <input
              className="jp-mod-styled"
              defaultValue={each.value}
              required={each.is_required}
              spellCheck={false}
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
