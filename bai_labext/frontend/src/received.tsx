import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Button } from './button';
import { Form } from './form';
import type { Person } from './person';
import type { Translate } from './texts';
import type { Items } from './types';

interface Invitation {
  id: string;
  vfolder: string;
  invitee: string;
  inviter: string;
  permission: string;
}

/** Show the folders that others offer, to be accepted or declined. */
export async function showReceived(person: Person, t: Translate): Promise<void> {
  const title = t('received-title');
  await showDialog({
    title,
    body: new Received(title, person, t),
    buttons: [Dialog.okButton({ label: t('close') })]
  });
}

class Received extends Form {
  constructor(
    title: string,
    private readonly person: Person,
    private readonly t: Translate
  ) {
    super(title);
  }

  protected override render(): React.ReactElement {
    return <Invitations person={this.person} t={this.t} />;
  }
}

function Invitations(props: { person: Person; t: Translate }): React.ReactElement {
  const { person, t } = props;
  const [pending, setPending] = React.useState<Invitation[] | null>(null);
  const [wrong, setWrong] = React.useState('');

  const load = async (): Promise<Invitation[]> => {
    const me = await person.get<{ username: string }>('/me');
    const invitee = encodeURIComponent(me.username);
    const path = `/vfolder-invitations?limit=100&status=pending&invitee=${invitee}`;
    return (await person.get<Items<Invitation>>(path)).items;
  };
  const act = (action: () => Promise<unknown>): void => {
    setWrong('');
    action()
      .then(load)
      .then(setPending)
      .catch((error: unknown) => setWrong(error instanceof Error ? error.message : String(error)));
  };
  React.useEffect(() => act(() => Promise.resolve()), []);

  return (
    <>
      {wrong && (
        <p className="bai-Problem" role="alert">
          {wrong}
        </p>
      )}
      <p className="bai-Hint" role="status">
        {pending?.length === 0 ? t('received-nothing') : ''}
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
              of={vfolder}
              onClick={() => act(() => person.post(`/vfolder-invitations/${id}/accept`, {}))}
            />
            <Button
              label={t('decline')}
              of={vfolder}
              onClick={() => act(() => person.post(`/vfolder-invitations/${id}/decline`, {}))}
            />
          </li>
        ))}
      </ul>
    </>
  );
}
