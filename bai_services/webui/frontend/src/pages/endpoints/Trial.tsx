import { useState } from 'react';
import { Alert, Button, Modal, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { trialQuery, useEndTrial, useTry, type NewTrial } from '../../data/serving/trials';
import { reasonText } from '../../i18n/reasonText';

interface TryButtonProps {
  /** Return the current values of the form; undefined if they are not valid. */
  read: () => Promise<NewTrial | undefined>;
  onError: (error: Error) => void;
}

/** Start a replica with the settings of the form, unreachable for clients, and show whether it
 * becomes healthy.
 */
export function TryButton({ read, onError }: TryButtonProps) {
  const { t } = useTranslation();
  const start = useTry();
  const [trial, setTrial] = useState<string>();
  const begin = async () => {
    const body = await read();
    if (body !== undefined) {
      start.mutate(body, { onSuccess: ({ id }) => setTrial(id), onError });
    }
  };
  return (
    <>
      <Button loading={start.isPending} onClick={() => void begin()}>
        {t('endpoint-trial.try')}
      </Button>
      {trial && <TrialDialog trial={trial} onClose={() => setTrial(undefined)} />}
    </>
  );
}

function TrialDialog({ trial, onClose }: { trial: string; onClose: () => void }) {
  const { t, i18n } = useTranslation();
  const { data, error, refetch } = useQuery(trialQuery(trial));
  const end = useEndTrial(trial);
  const isOver = data !== undefined && data.ended_at !== null;
  const close = () => {
    if (!isOver) {
      // End the trial, because its result is no longer needed.
      end.mutate();
    }
    onClose();
  };
  const type = isOver ? (data.is_healthy ? 'success' : 'error') : 'info';
  const outcome = isOver ? (data.is_healthy ? 'healthy' : 'unhealthy') : 'running';
  return (
    <Modal
      open
      onCancel={close}
      title={t('endpoint-trial.title')}
      footer={<Button onClick={close}>{t(`endpoint-trial.${isOver ? 'close' : 'end'}`)}</Button>}
    >
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Skeleton active />}
      {data && (
        <>
          <Alert
            type={type}
            showIcon
            role="status"
            title={t(`endpoint-trial.${outcome}`)}
            description={reasonText(i18n, { message: data.state, coded: data.state_coded })}
          />
          {data.log && (
            <pre
              tabIndex={0}
              aria-label={t('endpoint-trial.log')}
              style={{ marginBlockStart: 12, maxHeight: 240, overflow: 'auto' }}
            >
              {data.log}
            </pre>
          )}
        </>
      )}
    </Modal>
  );
}
