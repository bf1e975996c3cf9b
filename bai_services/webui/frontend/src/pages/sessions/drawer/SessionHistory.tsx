import { Skeleton, Timeline } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { StatusTag } from '../../../components/StatusTag';
import { TimeText } from '../../../components/TimeText';
import { historyQuery } from '../../../data/sessions/sessions';
import { reasonText } from '../../../i18n/reasonText';
import { replacesData } from '../../../data/connection';

/** Status changes of a session, the latest first. */
export function SessionHistory({ id }: { id: string }) {
  const { i18n } = useTranslation();
  const { data, error, refetch } = useQuery(historyQuery(id));
  if (replacesData(error, data)) {
    return <ErrorNotice error={error} onRetry={() => void refetch()} />;
  }
  if (!data) {
    return <Skeleton active />;
  }
  return (
    <Timeline
      items={data.items.toReversed().map((step, index) => ({
        key: index,
        content: (
          <>
            <StatusTag status={step.to_status} /> <TimeText at={step.at} isExact />
            <div>
              <bdi>{reasonText(i18n, { message: step.reason, coded: step.reason_coded })}</bdi>
            </div>
          </>
        )
      }))}
    />
  );
}
