import { Clipboard, Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { allItems } from './allItems';
import { Button } from './button';
import { useEnterKey } from './useEnterKey';
import { Form } from './form';
import type { UserClient } from './userClient';
import type { Translate } from './i18n';
import type { App, AppShare, Session } from './types';

const DAY_SECONDS = 86_400;
const DAYS = [1, 7, 30];

/** Show a dialog to share an app of this session with other users. */
export async function showAppSharing(
  app: App,
  session: Session,
  client: UserClient,
  t: Translate
): Promise<void> {
  const title = t('share-app-title', { name: app.title });
  await showDialog({
    title,
    body: new AppSharing(title, app, session, client, t),
    buttons: [Dialog.okButton({ label: t('close') })]
  });
}

class AppSharing extends Form {
  constructor(
    title: string,
    private readonly app: App,
    private readonly session: Session,
    private readonly client: UserClient,
    private readonly t: Translate
  ) {
    super(title);
  }

  protected override render(): React.ReactElement {
    return <Shares app={this.app} session={this.session} client={this.client} t={this.t} />;
  }
}

interface Props {
  app: App;
  session: Session;
  client: UserClient;
  t: Translate;
}

function Shares({ app, session, client, t }: Props): React.ReactElement {
  const base = `/sessions/${session.id}/app-shares`;
  const [shares, setShares] = React.useState<AppShare[] | null>(null);
  const [problem, setProblem] = React.useState('');
  const latestRequest = React.useRef(0);
  const runAndReload = (action: () => Promise<unknown>): void => {
    const request = (latestRequest.current += 1);
    setProblem('');
    action()
      .then(() => allItems<AppShare>(client.get, base))
      .then(shares => shares.filter(share => share.app === app.name))
      // Ignore the list of a request that is not the latest.
      .then(loaded => request === latestRequest.current && setShares(loaded))
      .catch((error: unknown) =>
        setProblem(error instanceof Error ? error.message : String(error))
      );
  };
  React.useEffect(() => runAndReload(() => Promise.resolve()), []);
  return (
    <>
      <NewShare
        session={session}
        t={t}
        onShare={share => runAndReload(() => client.post(base, { app: app.name, ...share }))}
      />
      {problem && (
        <p className="bai-Problem" role="alert">
          {problem}
        </p>
      )}
      {shares?.length === 0 && <p className="bai-Hint">{t('app-not-shared')}</p>}
      <ul className="bai-List" aria-live="polite">
        {(shares ?? []).map(share => (
          <li key={share.id}>
            <span className="bai-List-main">
              {share.user ?? share.project ?? t('everyone')}
              <span className="bai-Hint">
                {t('until', { time: new Date(share.expires_at).toLocaleString() })}
                {(share.allowed_addresses ?? []).length > 0 &&
                  ` · ${(share.allowed_addresses ?? []).join(', ')}`}
              </span>
            </span>
            <span className="bai-Buttons">
              <Button
                label={t('copy-address')}
                target={share.user ?? share.project ?? t('everyone')}
                onClick={() =>
                  Clipboard.copyToSystem(new URL(share.url, window.location.href).href)
                }
              />
              <Button
                label={t('stop-sharing')}
                target={share.user ?? share.project ?? t('everyone')}
                onClick={() => runAndReload(() => client.delete(`${base}/${share.id}`))}
              />
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function NewShare(props: {
  session: Session;
  t: Translate;
  onShare: (share: Record<string, unknown>) => void;
}): React.ReactElement {
  const { session, t, onShare } = props;
  const [audience, setAudience] = React.useState('user');
  const [user, setUser] = React.useState('');
  const [addresses, setAddresses] = React.useState('');
  const [days, setDays] = React.useState(DAYS[0] ?? 1);
  const share = (): void => {
    const listed = addresses.split(/[\s,]+/).filter(Boolean);
    onShare({
      ...(audience === 'user' ? { user: user.trim() } : {}),
      ...(audience === 'project' ? { project: session.project } : {}),
      ...(audience === 'public' ? { public: true, allowed_addresses: listed } : {}),
      expires_in: days * DAY_SECONDS
    });
  };
  const row = React.useRef<HTMLDivElement>(null);
  useEnterKey(row, share);
  return (
    <div className="bai-Form-row" ref={row}>
      <select
        aria-label={t('share-with')}
        value={audience}
        onChange={event => setAudience(event.target.value)}
      >
        <option value="user">{t('one-user')}</option>
        <option value="project">{t('project-members', { name: session.project })}</option>
        <option value="public">{t('everyone')}</option>
      </select>
      {audience === 'user' && (
        <input
          className="jp-mod-styled"
          value={user}
          placeholder={t('name-or-email')}
          aria-label={t('name-or-email')}
          onChange={event => setUser(event.target.value)}
        />
      )}
      {audience === 'public' && (
        <input
          className="jp-mod-styled"
          value={addresses}
          placeholder={t('allowed-addresses')}
          aria-label={t('allowed-addresses')}
          onChange={event => setAddresses(event.target.value)}
        />
      )}
      <select
        aria-label={t('for-days')}
        value={days}
        onChange={event => setDays(Number(event.target.value))}
      >
        {DAYS.map(count => (
          <option key={count} value={count}>
            {t('days', { count })}
          </option>
        ))}
      </select>
      <Button label={t('share-button')} onClick={share} />
    </div>
  );
}
