import { CheckOutlined, CloseOutlined } from '@ant-design/icons';
import { Alert, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { OverflowTargets } from '../../../components/OverflowTargets';
import { startText } from '../../../components/startText';
import { whyQuery, type Session } from '../../../data/sessions/sessions';
import { reasonText, statusText, type Reason } from '../../../i18n/reasonText';
import { replacesData } from '../../../data/connection';

/** Why a session is pending, its estimated start, and changes that would let it start sooner. */
export function WhyPending({ session }: { session: Session }) {
  const { t, i18n } = useTranslation();
  const { data: why, error, refetch } = useQuery(whyQuery(session.id));
  if (replacesData(error, why)) {
    return (
      <>
        <ErrorNotice error={error} onRetry={() => void refetch()} />
        <p>{statusText(i18n, session)}</p>
      </>
    );
  }
  if (!why) {
    return <Skeleton active paragraph={{ rows: 2 }} />;
  }
  return (
    <Alert
      type="info"
      showIcon
      style={{ marginBottom: 16 }}
      title={
        why.position === null
          ? t('why.pending')
          : t('why.position', { position: why.position, group: why.resource_group })
      }
      description={
        <>
          <div>{statusText(i18n, session)}</div>
          <div>{startText(t, why.estimate, i18n.language)}</div>
          {why.checks.length > 0 && <Checks checks={why.checks} />}
          {why.sooner.length > 0 && (
            <>
              <strong>{t('why.sooner')}</strong>
              <ul style={{ margin: 0 }}>
                {why.sooner.map(remedy => (
                  <li key={remedy.message}>{reasonText(i18n, remedy)}</li>
                ))}
              </ul>
            </>
          )}
          <OverflowTargets targets={why.overflow} />
        </>
      }
    />
  );
}

interface Check extends Reason {
  passed: boolean;
}

/** The scheduler's checks with their results, in the order of evaluation. */
function Checks({ checks }: { checks: Check[] }) {
  const { t, i18n } = useTranslation();
  return (
    <details>
      <summary>{t('why.checks')}</summary>
      <ul className="bai-checks">
        {checks.map((check, index) => (
          <li key={index}>
            {check.passed ? (
              <CheckOutlined aria-label={t('why.passed')} />
            ) : (
              <CloseOutlined aria-label={t('why.failed')} />
            )}{' '}
            {reasonText(i18n, check)}
          </li>
        ))}
      </ul>
    </details>
  );
}
