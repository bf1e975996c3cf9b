import { Button, Empty, Flex, Input, Skeleton } from 'antd';
import { useState } from 'react';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../../config';
import { ErrorNotice } from '../../components/ErrorNotice';
import { logsQuery, type Session } from '../../data/sessions';

const MAX_HEIGHT = 420;

/** The last lines of a session's output, with a search and a download. */
export function SessionLogs({ session }: { session: Session }) {
  const { t } = useTranslation();
  const [text, setText] = useState('');
  const { data, error, refetch, isFetching } = useQuery(logsQuery(session.id, text));
  return (
    <>
      <Flex gap="small" wrap style={{ marginBottom: 8 }}>
        <Input.Search
          allowClear
          placeholder={t('logs.find')}
          aria-label={t('logs.find')}
          onSearch={setText}
          loading={isFetching}
          style={{ maxWidth: 260 }}
        />
        <Button href={`${config.api}/sessions/${encodeURIComponent(session.id)}/log-file`} download>
          {t('logs.download')}
        </Button>
      </Flex>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {data === undefined && !error && <Skeleton active />}
      {data !== undefined &&
        (data ? (
          <pre tabIndex={0} style={{ maxHeight: MAX_HEIGHT, overflow: 'auto', fontSize: 12 }}>
            {data}
          </pre>
        ) : (
          <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('logs.empty')} />
        ))}
    </>
  );
}
