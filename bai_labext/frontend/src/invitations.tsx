import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { allItems } from './allItems';
import { Button } from './button';
import { Form } from './form';
import type { UserClient } from './userClient';
import type { Translate } from './i18n';

interface Invitation {
  id: string;
  vfolder: string;
  invitee: string;
  inviter: string;
  permission: string;
}

/** Show a dialog to accept or decline invitations to folders of other users. */
export async function showInvitations(client: UserClient, t: Translate): Promise<void> {
  const title = t('received-title');
  await showDialog({
    title,
    body: new InvitationDialog(title, client, t),
    buttons: [Dialog.okButton({ label: t('close') })]
  });
}

class InvitationDialog extends Form {
  constructor(
    title: string,
    private readonly client: UserClient,
    private readonly t: Translate
  ) {
    super(title);
  }

  protected override render(): React.ReactElement {
    return <Invitations client={this.client} t={this.t} />;
  }
}

function Invitations(props: { client: UserClient; t: Translate }): React.ReactElement {
  const { client, t } = props;
  const [pending, setPending] = React.useState<Invitation[] | null>(null);
  const [problem, setProblem] = React.useState('');

  const load = async (): Promise<Invitation[]> => {
    const me = await client.get<{ username: string }>('/me');
    const invitee = encodeURIComponent(me.username);
    return allItems(client.get, `/vfolder-invitations?status=pending&invitee=${invitee}`);
  };
  const runAndReload = (action: () => Promise<unknown>): void => {
    setProblem('');
    action()
      .then(load)
      .then(setPending)
      .catch((error: unknown) =>
        setProblem(error instanceof Error ? error.message : String(error))
      );
  };
  React.useEffect(() => runAndReload(() => Promise.resolve()), []);

  return (
    <>
      {problem && (
        <p className="bai-Problem" role="alert">
          {problem}
        </p>
      )}
      <p className="bai-Hint" role="status">
        {pending?.length === 0 ? t('no-invitations') : ''}
      </p>
      <ul className="bai-List">
        {(pending ?? []).map(({ id, vfolder, inviter, permission }) => (
          <li key={id}>
            <span className="bai-List-main">
              {vfolder}
              <span className="bai-Hint">
                {inviter} · {t(permission === 'ro' ? 'ro' : 'rw')}
              </span>
            </span>
            <Button
              label={t('accept')}
              target={vfolder}
              onClick={() =>
                runAndReload(() => client.post(`/vfolder-invitations/${id}/accept`, {}))
              }
            />
            <Button
              label={t('decline')}
              target={vfolder}
              onClick={() =>
                runAndReload(() => client.post(`/vfolder-invitations/${id}/decline`, {}))
              }
            />
          </li>
        ))}
      </ul>
    </>
  );
}
