import { Button, Checkbox, Empty, Flex, Input, Tag, Typography } from 'antd';
import { useState } from 'react';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import { ScrollArea } from '../../components/ScrollArea';
import {
  clearRequestLog,
  readablePath,
  useRequestLog,
  type LoggedRequest
} from '../../data/requestLog';

interface RequestsProps {
  find: string;
  onFind: (text: string) => void;
}

const isFailed = ({ status }: LoggedRequest) => status === 0 || status >= 400;

/** Log of this browser tab's API requests, for troubleshooting. */
export function Requests({ find, onFind }: RequestsProps) {
  const { t, i18n } = useTranslation();
  const [isFailedOnly, setIsFailedOnly] = useState(false);
  const requests = useRequestLog().filter(
    request =>
      `${request.method} ${request.path}`.toLowerCase().includes(find.toLowerCase()) &&
      (!isFailedOnly || isFailed(request))
  );
  return (
    <>
      <Typography.Paragraph type="secondary">{t('settings.requests-help')}</Typography.Paragraph>
      <Flex wrap gap="middle" align="center" style={{ marginBottom: 12 }}>
        <Input.Search
          allowClear
          value={find}
          onChange={event => onFind(event.target.value)}
          placeholder={t('settings.find-request')}
          aria-label={t('settings.find-request')}
          style={{ maxWidth: 260 }}
        />
        <Checkbox checked={isFailedOnly} onChange={event => setIsFailedOnly(event.target.checked)}>
          {t('settings.failed-only')}
        </Checkbox>
        <Button onClick={clearRequestLog}>{t('settings.clear-requests')}</Button>
      </Flex>
      <ScrollArea label={t('settings.tab-requests')}>
        <CardTable<LoggedRequest>
          rowKey="number"
          size="small"
          pagination={false}
          dataSource={requests}
          locale={{
            emptyText: (
              <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('settings.no-requests')} />
            )
          }}
          columns={[
            {
              key: 'at',
              title: t('settings.time'),
              render: (_, { at }) => new Date(at).toLocaleTimeString(i18n.language)
            },
            { key: 'method', title: t('settings.method'), dataIndex: 'method' },
            {
              key: 'path',
              title: t('settings.path'),
              render: (_, { path }) => (
                <span style={{ overflowWrap: 'anywhere' }}>{readablePath(path)}</span>
              )
            },
            {
              key: 'status',
              title: t('settings.status'),
              render: (_, request) => (
                <Tag color={isFailed(request) ? 'red' : 'default'}>
                  {request.status === 0 ? t('settings.no-response') : request.status}
                </Tag>
              )
            },
            {
              key: 'millis',
              title: t('settings.duration'),
              align: 'right',
              render: (_, { millis }) => `${millis} ms`
            }
          ]}
        />
      </ScrollArea>
    </>
  );
}
