import * as React from 'react';

import { idleSecondsLeft, otherNotices, secondsLeft } from './stopTimes';
import { amount, bytes, duration, idleRuleState, inLocalTime, reasonText } from './format';
import type { Device, Session } from './types';
import type { Translate } from './i18n';

/** Details of this session. */
export function Details(props: {
  session: Session;
  hasEnded: boolean;
  t: Translate;
}): React.ReactElement {
  const { session, hasEnded, t } = props;
  const rows: [string, React.ReactNode][] = [
    ['project', `${session.project} (${session.domain})`],
    ['image', session.image],
    ['resource-group', session.resource_group],
    ['agent', session.agent],
    ['resources', <Resources key="resources" session={session} />],
    ['shared-memory', amount('mem', session.shared_memory)],
    ['cluster', session.cluster_size > 1 ? session.cluster_size : null],
    ...(hasEnded ? [] : times(session))
  ];
  return (
    <>
      <dl className="bai-Facts">
        {rows
          .filter(([, value]) => value)
          .map(([key, value]) => (
            <React.Fragment key={key}>
              <dt>{t(key)}</dt>
              <dd>{value}</dd>
            </React.Fragment>
          ))}
      </dl>
      {session.devices.length > 0 && <Devices session={session} t={t} />}
      {!hasEnded && <IdleRules session={session} t={t} />}
      {session.mounts.length > 0 && <Mounts session={session} t={t} />}
      {otherNotices(session).map(notice => (
        <p key={notice} className="bai-Notice">
          {inLocalTime(t(notice))}
        </p>
      ))}
    </>
  );
}

function times(session: Session): [string, React.ReactNode][] {
  if (!session.started_at) {
    return [];
  }
  const elapsed = (Date.now() - Date.parse(session.started_at)) / 1000;
  const left = secondsLeft(session);
  const idleLeft = idleSecondsLeft(session);
  return [
    ['elapsed', duration(elapsed)],
    ['ends-in', left === null ? null : duration(left)],
    ['idle-ends-in', idleLeft === null ? null : duration(idleLeft)]
  ];
}

function Resources({ session }: { session: Session }): React.ReactElement {
  return (
    <>
      {Object.entries(session.requested).map(([slot, text]) => (
        <div key={slot}>{`${slot} ${amount(slot, text)}`}</div>
      ))}
    </>
  );
}

/** Enforcement level of a device's share, or "unknown". */
function enforcementLevel(device: Device, session: Session): string {
  return device.enforcement ?? session.enforcement?.[device.family] ?? 'unknown';
}

function Devices({ session, t }: { session: Session; t: Translate }): React.ReactElement {
  return (
    <>
      <h3>{t('devices')}</h3>
      <ul className="bai-List">
        {session.devices.map(device => (
          <li key={device.id}>
            <div className="bai-List-main">
              <span className="bai-List-title">{device.model || device.id}</span>
              <span className="bai-Hint">
                {t('share', { share: device.share })}
                {device.memory_bytes !== null && ` · ${bytes(device.memory_bytes)}`}
                {device.is_simulated && ` · ${t('simulated')}`}
              </span>
              <span className="bai-Hint">
                {t(`enforcement-${enforcementLevel(device, session)}`)}
              </span>
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The idle checkers that may stop the session, also before it is idle. */
function IdleRules({ session, t }: { session: Session; t: Translate }): React.ReactElement | null {
  const checks = (session.idle_checks ?? []).filter(check => !check.is_dry_run);
  return checks.length === 0 ? null : (
    <>
      <h3>{t('idle-rules')}</h3>
      <ul className="bai-List">
        {checks.map(check => (
          <li key={check.checker}>
            <div className="bai-List-main">
              <span>{reasonText(t, check.reason, check.coded)}</span>
              <span className="bai-Hint">{idleRuleState(t, check)}</span>
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}

function Mounts({ session, t }: { session: Session; t: Translate }): React.ReactElement {
  return (
    <>
      <h3>{t('mounted')}</h3>
      <ul className="bai-List">
        {session.mounts.map(mount => (
          <li key={mount.path}>
            <div className="bai-List-main">
              <span className="bai-List-title">{mount.path}</span>
              <span className="bai-Hint">
                {mount.vfolder} · {t(mount.permission === 'ro' ? 'ro' : 'rw')}
              </span>
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}
