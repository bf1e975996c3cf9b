import { useRef, useState, type Ref } from 'react';
import { Button, Empty, Flex, Input, Modal, Skeleton, Typography, type InputRef } from 'antd';
import { FileSearchOutlined } from '@ant-design/icons';
import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { formatTime } from '../../../components/time';
import { storedLogsQuery, type LogHit } from '../../../data/sessions/logs';

/** A button that opens a search in the logs of the user's ended sessions. */
export function SearchLogs() {
  const { t } = useTranslation();
  const [isOpen, setOpen] = useState(false);
  const input = useRef<InputRef>(null);
  return (
    <>
      <Button icon={<FileSearchOutlined />} onClick={() => setOpen(true)}>
        {t('logs.search-all')}
      </Button>
      <Modal
        open={isOpen}
        title={t('logs.search-all')}
        footer={null}
        width={800}
        onCancel={() => setOpen(false)}
        afterOpenChange={opened => opened && input.current?.focus()}
        destroyOnHidden
      >
        <Search input={input} onClose={() => setOpen(false)} />
      </Modal>
    </>
  );
}

function Search({ input, onClose }: { input: Ref<InputRef>; onClose: () => void }) {
  const { t } = useTranslation();
  const [text, setText] = useState('');
  const found = useInfiniteQuery(storedLogsQuery(text));
  const pages = found.data?.pages ?? [];
  const hits = pages.flatMap(({ items }) => items);
  const searched = pages.reduce((sum, page) => sum + page.searched, 0);
  return (
    <>
      <Typography.Paragraph type="secondary">{t('logs.search-all-help')}</Typography.Paragraph>
      <Input.Search
        ref={input}
        allowClear
        enterButton
        maxLength={200}
        placeholder={t('logs.find')}
        aria-label={t('logs.find')}
        onSearch={value => setText(value.trim())}
        loading={found.isFetching}
      />
      <div aria-live="polite" style={{ marginTop: 8 }}>
        {found.error && <ErrorNotice error={found.error} onRetry={() => void found.refetch()} />}
        {found.data && t('logs.hits', { count: hits.length, searched })}
      </div>
      {text && found.isPending && <Skeleton active />}
      {hits.map(hit => (
        <Hit key={`${hit.session_id}/${hit.kernel}`} hit={hit} onClose={onClose} />
      ))}
      {found.data && hits.length === 0 && !found.hasNextPage && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('logs.none-found')} />
      )}
      {found.hasNextPage && (
        <Flex justify="center">
          <Button loading={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
            {t('logs.search-older')}
          </Button>
        </Flex>
      )}
    </>
  );
}

function Hit({ hit, onClose }: { hit: LogHit; onClose: () => void }) {
  const { t, i18n } = useTranslation();
  const more = hit.match_count - hit.matches.length;
  return (
    <section style={{ marginTop: 16 }}>
      <Link
        to="/sessions"
        search={{ tab: 'ended', session: hit.session_id, panel: 'logs' }}
        onClick={onClose}
      >
        {hit.session}
      </Link>{' '}
      <Typography.Text type="secondary">
        {hit.kernel} · {hit.terminated_at && formatTime(hit.terminated_at, i18n.language)}
      </Typography.Text>
      <pre className="bai-log-hit" tabIndex={0} aria-label={t('sessions.logs')}>
        {hit.matches.map(({ number, text }) => `${number}: ${text}`).join('\n')}
      </pre>
      {more > 0 && (
        <Typography.Text type="secondary">{t('logs.more-lines', { count: more })}</Typography.Text>
      )}
    </section>
  );
}
