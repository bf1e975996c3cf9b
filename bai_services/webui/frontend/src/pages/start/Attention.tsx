import { Alert, Flex } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import { scopeTitle, usageText } from '../../components/storageScope';
import { formatSeconds, useNow } from '../../components/time';
import { config } from '../../config';
import { useIsReadOnly } from '../../data/accounts/me';
import { ownQuotasQuery } from '../../data/folders/folders';
import { NEARLY_FULL_PERCENT, quotasQuery } from '../../data/sessions/quotas';
import { afterStopText } from '../../data/sessions/endTexts';
import { endKind, endOf, runningSessionsQuery, type Session } from '../../data/sessions/sessions';
import { reasonText } from '../../i18n/reasonText';
import { Invitations } from '../data/Invitations';
import { StopActions } from '../sessions/StopActions';

const SOON_MILLIS = 30 * 60_000;
const REFRESH_MILLIS = 60_000;

const TEXTS = {
  idle: 'start.ends-idle',
  checker: 'start.ends-idle',
  lifetime: 'start.ends',
  preemption: 'start.preempted',
  rule: 'start.stops'
} as const;

/** Invitations to answer, sessions that stop soon, and quotas that are nearly used up. */
export function Attention() {
  const { t } = useTranslation();
  // Users who only read have no quotas.
  const isReader = useIsReadOnly();
  return (
    <section aria-label={t('start.attention')}>
      <Invitations />
      <EndingSessions />
      {isReader === false && <FullQuotas />}
    </section>
  );
}

function EndingSessions() {
  const now = useNow(REFRESH_MILLIS / 2);
  const running = useQuery({
    ...runningSessionsQuery(config.username),
    refetchInterval: REFRESH_MILLIS
  });
  return (running.data ?? []).map(session => {
    const end = endOf(session);
    const left = end === undefined ? Infinity : Date.parse(end) - now;
    return left < SOON_MILLIS && <EndingSession key={session.id} session={session} left={left} />;
  });
}

function EndingSession({ session, left }: { session: Session; left: number }) {
  const { t, i18n } = useTranslation();
  const kind = endKind(session);
  const rule = session.end_rule;
  const after = afterStopText(session);
  return (
    <Alert
      type="warning"
      showIcon
      style={{ marginBottom: 12 }}
      title={
        <>
          <Link to="/sessions" search={{ session: session.id }}>
            {session.name}
          </Link>{' '}
          {t(TEXTS[kind], {
            time: formatSeconds(Math.max(0, left) / 1000, i18n.language)
          })}
        </>
      }
      description={
        // The buttons are below the text: on a narrow screen, there is no room beside it.
        <Flex vertical align="start" gap="small">
          {rule && reasonText(i18n, { message: rule.reason, coded: rule.coded })}
          {after && <span>{t(after)}</span>}
          <Flex wrap gap="small">
            <StopActions session={session} />
          </Flex>
        </Flex>
      }
    />
  );
}

const isNearlyFull = ({ percent }: { percent: number | null }) =>
  percent !== null && percent >= NEARLY_FULL_PERCENT;

function FullQuotas() {
  const { t, i18n } = useTranslation();
  const { data } = useQuery({ ...quotasQuery(), refetchInterval: REFRESH_MILLIS });
  const storage = useQuery({ ...ownQuotasQuery, refetchInterval: REFRESH_MILLIS });
  const resources = (data?.scopes ?? []).flatMap(({ kind, name, slots }) =>
    slots.filter(isNearlyFull).map(({ slot, used, limit, left }) => {
      const usage = t('dashboard.used', {
        used: shortAmount(slot, used),
        limit: shortAmount(slot, limit ?? ''),
        left: shortAmount(slot, left ?? '')
      });
      return `${t(`dashboard.scope-${kind}`, { name })}: ${slot} ${usage}`;
    })
  );
  const folders = (storage.data ?? []).filter(isNearlyFull).map(scope => {
    const usage = usageText(t, i18n.language, scope);
    return `${t('start.storage', { host: scope.host })}, ${scopeTitle(t, scope)}: ${usage}`;
  });
  const full = [...resources, ...folders];
  return (
    full.length > 0 && (
      <Alert
        type="warning"
        showIcon
        style={{ marginBottom: 12 }}
        title={t('start.quotas-full')}
        description={full.map(text => (
          <div key={text}>{text}</div>
        ))}
        action={<Link to="/dashboard">{t('pages.dashboard')}</Link>}
      />
    )
  );
}
