import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { Button } from './button';
import { useOwnEnter } from './enter';
import { Form } from './form';
import type { Person } from './person';
import type { Translate } from './texts';
import type { Folder, Items } from './types';

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

interface Shown {
  grants: Grant[];
  invitations: Invitation[];
  said: string;
}

const NOTHING_YET: Shown = { grants: [], invitations: [], said: '' };

/** Show and edit with whom a folder is shared. */
export async function showSharing(folder: Folder, person: Person, t: Translate): Promise<void> {
  const title = t('share-title', { name: folder.name });
  await showDialog({
    title,
    body: new Sharing(title, folder, person, t),
    buttons: [Dialog.okButton({ label: t('close') })]
  });
}

class Sharing extends Form {
  constructor(
    title: string,
    private readonly folder: Folder,
    private readonly person: Person,
    private readonly t: Translate
  ) {
    super(title);
  }

  protected override render(): React.ReactElement {
    return <Shares folder={this.folder} person={this.person} t={this.t} />;
  }
}

function Shares(props: { folder: Folder; person: Person; t: Translate }): React.ReactElement {
  const { folder, person, t } = props;
  const base = `/vfolders/${folder.id}`;
  const [{ grants, invitations, said }, setShown] = React.useState<Shown>(NOTHING_YET);
  const [wrong, setWrong] = React.useState('');
  const latest = React.useRef(0);

  const look = async (done: string): Promise<Shown> => {
    const [given, offered] = await Promise.all([
      person.get<Items<Grant>>(`${base}/grants?limit=100`),
      person.get<Items<Invitation>>(`${base}/invitations?limit=100&status=pending`)
    ]);
    const isNobody = given.items.length + offered.items.length === 0;
    const said = done || (isNobody ? t('shared-with-nobody') : '');
    return { grants: given.items, invitations: offered.items, said };
  };
  const doing = (action: () => Promise<unknown>, done = ''): void => {
    const turn = (latest.current += 1);
    setWrong('');
    action()
      .then(() => look(done))
      // Ignore the answer of an older, slower request.
      .then(seen => turn === latest.current && setShown(seen))
      .catch((error: unknown) => setWrong(error instanceof Error ? error.message : String(error)));
  };
  React.useEffect(() => doing(() => Promise.resolve()), []);

  const invite = (user: string, permission: string): void =>
    doing(
      () => person.post(`${base}/invitations`, { user, permission }),
      t('invited', { name: user })
    );
  return (
    <>
      <Invite onInvite={invite} t={t} />
      {wrong && (
        <p className="bai-Problem" role="alert">
          {wrong}
        </p>
      )}
      <p className="bai-Hint" role="status">
        {said}
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
                doing(() =>
                  person.put(`${base}/grants/${encodeURIComponent(user)}`, { permission: changed })
                )
              }
            />
            <Button
              label={t('stop-sharing')}
              of={user}
              onClick={() =>
                doing(() => person.delete(`${base}/grants/${encodeURIComponent(user)}`))
              }
            />
          </li>
        ))}
        {invitations.map(({ id, invitee, permission }) => (
          <li key={id}>
            <span className="bai-List-main">
              {invitee}
              <span className="bai-Hint">
                {t('invitation-waits')} · {t(permission === 'ro' ? 'ro' : 'rw')}
              </span>
            </span>
            <Button
              label={t('withdraw')}
              of={invitee}
              onClick={() => doing(() => person.delete(`/vfolder-invitations/${id}`))}
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
  useOwnEnter(row, send);
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
