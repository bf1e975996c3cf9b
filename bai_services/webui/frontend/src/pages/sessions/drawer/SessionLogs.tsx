import { useMemo, useState } from 'react';
import { Alert, Badge, Button, Empty, Flex, Input, Select, Skeleton, Switch } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../../../config';
import { ErrorNotice } from '../../../components/ErrorNotice';
import type { Log } from '../../../data/sessions/logLines';
import { logSearchQuery, useLog } from '../../../data/sessions/logs';
import type { Session } from '../../../data/sessions/sessions';
import { LogLines } from './LogLines';

interface SessionLogsProps {
  session: Session;
  /** Host name of the kernel. */
  kernel: string;
  onKernel: (kernel: string) => void;
}

/** The output of a kernel, followed live; during a search, only the lines that match. */
export function SessionLogs({ session, kernel, onKernel }: SessionLogsProps) {
  const { t } = useTranslation();
  const [text, setText] = useState('');
  const [attempt, setAttempt] = useState(0);
  const [isFollowed, setFollowed] = useState(true);
  const log = useLog(session.id, kernel, attempt);
  const matches = useQuery(logSearchQuery(session.id, kernel, text));
  const all = useMemo(() => numbered(log), [log]);
  const lines = text ? matches.data : log.state === 'loading' ? undefined : all;
  const error = text ? matches.error : log.error;
  const address = `${config.api}/sessions/${encodeURIComponent(session.id)}/log-file`;
  return (
    <>
      <Flex gap="small" wrap align="center" style={{ marginBottom: 8 }}>
        {session.kernels.length > 1 && (
          <Select
            aria-label={t('logs.kernel')}
            value={kernel}
            onChange={onKernel}
            options={session.kernels.map(({ hostname }) => ({ value: hostname, label: hostname }))}
            style={{ minWidth: 100 }}
          />
        )}
        <Input.Search
          allowClear
          placeholder={t('logs.find')}
          aria-label={t('logs.find')}
          onSearch={setText}
          loading={matches.isFetching}
          style={{ maxWidth: 220 }}
        />
        <Button href={`${address}?kernel=${encodeURIComponent(kernel)}`} download>
          {t('logs.download')}
        </Button>
        {!text && log.state === 'live' && (
          <label>
            <Switch size="small" checked={isFollowed} onChange={setFollowed} /> {t('logs.follow')}
          </label>
        )}
        {text ? (
          lines && t('logs.matches', { count: lines.length })
        ) : (
          <Badge
            status={log.state === 'live' ? 'processing' : 'default'}
            text={t(`logs.${log.state}`)}
          />
        )}
      </Flex>
      {!text && log.hasGap && (
        <Alert type="warning" showIcon title={t('logs.gap')} style={{ marginBottom: 8 }} />
      )}
      {error && <ErrorNotice error={error} onRetry={() => setAttempt(attempt + 1)} />}
      {!lines && !error && <Skeleton active />}
      {lines && lines.length > 0 && (
        <LogLines
          lines={lines}
          isFollowed={isFollowed && !text && log.state === 'live'}
          onFollow={setFollowed}
        />
      )}
      {lines?.length === 0 && !error && (
        <Empty
          image={Empty.PRESENTED_IMAGE_SIMPLE}
          description={t(text ? 'logs.none-found' : 'logs.empty')}
        />
      )}
    </>
  );
}

/** Return the lines with their numbers, without the empty line after the last line break. */
function numbered({ lines, dropped }: Log) {
  const count = lines.at(-1) === '' ? lines.length - 1 : lines.length;
  return lines.slice(0, count).map((text, index) => ({ number: dropped + index + 1, text }));
}
