import { Modal, Skeleton, Timeline } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { replicaHistoryQuery, type ReplicaChange } from '../../../data/serving/endpoints';
import { reasonText } from '../../../i18n/reasonText';
import { Phase } from './Phase';

// Show seconds, because several phases can begin within one minute.
const TIME = { dateStyle: 'medium', timeStyle: 'medium' } as const;

interface ReplicaHistoryProps {
  /** Id of the endpoint. */
  endpoint: string;
  replica: string;
  onClose: () => void;
}

/** Dialog with the phases of a replica and their reasons. */
export function ReplicaHistory({ endpoint, replica, onClose }: ReplicaHistoryProps) {
  const { t } = useTranslation();
  const { data, error, refetch } = useQuery(replicaHistoryQuery(endpoint, replica));
  return (
    <Modal open onCancel={onClose} footer={null} title={t('endpoint-replicas.history')}>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton active />}
      {data?.length === 0 && t('endpoint-replicas.no-history')}
      <Timeline
        style={{ marginBlockStart: 16 }}
        items={(data ?? []).map(change => ({
          key: change.id,
          content: <Change change={change} />
        }))}
      />
    </Modal>
  );
}

function Change({ change }: { change: ReplicaChange }) {
  const { t, i18n } = useTranslation();
  const { at, phase, reason, reason_coded: coded } = change;
  return (
    <>
      <Phase phase={phase} />{' '}
      <span className="bai-time">{new Date(at).toLocaleString(i18n.language, TIME)}</span>
      {reason && <div>{reasonText(i18n, { message: reason, coded })}</div>}
      {coded && (
        <details>
          <summary>{t('endpoint-replicas.as-json')}</summary>
          <pre tabIndex={0} className="bai-json" aria-label={t('endpoint-replicas.as-json')}>
            {JSON.stringify(coded, null, 2)}
          </pre>
        </details>
      )}
    </>
  );
}
