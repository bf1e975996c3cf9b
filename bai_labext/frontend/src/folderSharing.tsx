import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { allItems } from './allItems';
import { Button } from './button';
import { useEnterKey } from './useEnterKey';
import { Form } from './form';
import type { UserClient } from './userClient';
import type { Translate } from './i18n';
import type { Folder } from './types';

interface Grant {
  user: string;
  permission: string;
}

interface Invitation {
  id: string;
  invitee: string;
  permission: string;
  status: string;
}

interface SharingState {
  grants: Grant[];
  invitations: Invitation[];
  message: string;
}

const INITIAL_STATE: SharingState = { grants: [], invitations: [], message: '' };

/** Show a dialog to share a folder with other users. */
export async function showSharing(folder: Folder, client: UserClient, t: Translate): Promise<void> {
  const title = t('share-title', { name: folder.name });
  await showDialog({
    title,
    body: new Sharing(title, folder, client, t),
    buttons: [Dialog.okButton({ label: t('close') })]
  });
}

class Sharing extends Form {
  constructor(
    title: string,
    private readonly folder: Folder,
    private readonly client: UserClient,
    private readonly t: Translate
  ) {
    super(title);
  }

  protected override render(): React.ReactElement {
    return <Shares folder={this.folder} client={this.client} t={this.t} />;
  }
}

function Shares(props: { folder: Folder; client: UserClient; t: Translate }): React.ReactElement {
  const { folder, client, t } = props;
  const base = `/vfolders/${folder.id}`;
  const [{ grants, invitations, message }, setState] = React.useState(INITIAL_STATE);
  const [problem, setProblem] = React.useState('');
  const latestRequest = React.useRef(0);

  const load = async (done: string): Promise<SharingState> => {
    const [grants, invitations] = await Promise.all([
      allItems<Grant>(client.get, `${base}/grants`),
      allItems<Invitation>(client.get, `${base}/invitations?status=pending`)
    ]);
    const isShared = grants.length + invitations.length > 0;
    const message = done || (isShared ? '' : t('not-shared'));
    return { grants, invitations, message };
  };
  const runAndReload = (action: () => Promise<unknown>, done = ''): void => {
    const request = (latestRequest.current += 1);
    setProblem('');
    action()
      .then(() => load(done))
      // Ignore the response if a newer request has been sent since.
      .then(loaded => request === latestRequest.current && setState(loaded))
      .catch((error: unknown) =>
        setProblem(error instanceof Error ? error.message : String(error))
      );
  };
  React.useEffect(() => runAndReload(() => Promise.resolve()), []);

  const invite = (user: string, permission: string): void =>
    runAndReload(
      () => client.post(`${base}/invitations`, { user, permission }),
      t('invited', { name: user })
    );
  return (
    <>
      <Invite onInvite={invite} t={t} />
      {problem && (
        <p className="bai-Problem" role="alert">
          {problem}
        </p>
      )}
      <p className="bai-Hint" role="status">
        {message}
      </p>
      <ul className="bai-List">
        {grants.map(({ user, permission }) => (
          <li key={user}>
            <span className="bai-List-main">{user}</span>
            <Permission
              label={t('permission-of', { name: user })}
              value={permission}
              t={t}
              onChange={changed =>
                runAndReload(() =>
                  client.put(`${base}/grants/${encodeURIComponent(user)}`, { permission: changed })
                )
              }
            />
            <Button
              label={t('stop-sharing')}
              target={user}
              onClick={() =>
                runAndReload(() => client.delete(`${base}/grants/${encodeURIComponent(user)}`))
              }
            />
          </li>
        ))}
        {invitations.map(({ id, invitee, permission }) => (
          <li key={id}>
            <span className="bai-List-main">
              {invitee}
              <span className="bai-Hint">
                {t('invitation-pending')} · {t(permission === 'ro' ? 'ro' : 'rw')}
              </span>
            </span>
            <Button
              label={t('withdraw')}
              target={invitee}
              onClick={() => runAndReload(() => client.delete(`/vfolder-invitations/${id}`))}
            />
          </li>
        ))}
      </ul>
    </>
  );
}

function Invite(props: {
  onInvite: (user: string, permission: string) => void;
  t: Translate;
}): React.ReactElement {
  const { onInvite, t } = props;
  const [user, setUser] = React.useState('');
  const [permission, setPermission] = React.useState('ro');
  const send = (): void => {
    if (user.trim()) {
      onInvite(user.trim(), permission);
      setUser('');
    }
  };
  const row = React.useRef<HTMLDivElement>(null);
  useEnterKey(row, send);
  return (
    <div className="bai-Form-row" ref={row}>
      <input
        className="jp-mod-styled"
        value={user}
        placeholder={t('name-or-email')}
        aria-label={t('name-or-email')}
        onChange={event => setUser(event.target.value)}
      />
      <Permission label={t('permission')} value={permission} t={t} onChange={setPermission} />
      <Button label={t('invite')} onClick={send} />
    </div>
  );
}

function Permission(props: {
  label: string;
  value: string;
  t: Translate;
  onChange: (value: string) => void;
}): React.ReactElement {
  const { label, value, t, onChange } = props;
  return (
    <select aria-label={label} value={value} onChange={event => onChange(event.target.value)}>
      <option value="ro">{t('ro')}</option>
      <option value="rw">{t('rw')}</option>
      {value === 'wd' && <option value="wd">{t('wd')}</option>}
    </select>
  );
}
