import { useState } from 'react';
import { Alert, Button, Form, InputNumber, Modal, Select, Space, Table } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatBytes } from '../../components/bytes';
import { groupNamesQuery, usePruneImages } from '../../data/cluster/imagePulls';

const SECONDS_PER_DAY = 24 * 3600;
const DEFAULT_DAYS = 30;
const MAX_DAYS = 3660;

interface Values {
  resource_group: string;
  days: number;
}

/** Button that opens a dialog to list the unused images on agents, and then to remove them. */
export function PruneImages() {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <Button onClick={() => setIsOpen(true)}>{t('images.prune')}</Button>
      {isOpen && <PruneDialog onClose={() => setIsOpen(false)} />}
    </>
  );
}

function PruneDialog({ onClose }: { onClose: () => void }) {
  const { t, i18n } = useTranslation();
  const [form] = Form.useForm<Values>();
  const groups = useQuery(groupNamesQuery);
  const prune = usePruneImages();
  const report = prune.data;
  const error = groups.error ?? prune.error;
  const send = (is_dry_run: boolean) =>
    void form.validateFields().then(
      ({ resource_group, days }) =>
        prune.mutate({ resource_group, unused_seconds: days * SECONDS_PER_DAY, is_dry_run }),
      () => undefined // the form shows what is missing
    );
  const count = report?.is_dry_run ? report.images.length : 0;
  return (
    <Modal
      open
      width={800}
      title={t('images.prune')}
      onCancel={onClose}
      footer={
        <Space wrap>
          <Button loading={prune.isPending} onClick={() => send(true)}>
            {t('images.prune-list')}
          </Button>
          {count > 0 && (
            <Button danger type="primary" disabled={prune.isPending} onClick={() => send(false)}>
              {t('images.prune-remove', { count })}
            </Button>
          )}
        </Space>
      }
    >
      <Form
        form={form}
        layout="vertical"
        initialValues={{ days: DEFAULT_DAYS }}
        // Discard the list: it must belong to the values with which the images are removed.
        onValuesChange={() => prune.reset()}
      >
        <Form.Item
          name="resource_group"
          label={t('image-pulls.resource-group')}
          rules={[{ required: true, message: t('images.choose-group') }]}
        >
          <Select
            loading={groups.isPending}
            options={(groups.data ?? []).map(({ name }) => ({ value: name, label: name }))}
            showSearch={{ optionFilterProp: 'label' }}
          />
        </Form.Item>
        <Form.Item
          name="days"
          label={t('images.prune-days')}
          extra={t('images.prune-help')}
          rules={[{ required: true, message: t('images.prune-days') }]}
        >
          <InputNumber min={1} max={MAX_DAYS} precision={0} />
        </Form.Item>
      </Form>
      {error && <ErrorNotice error={error} />}
      {report && report.silent_agents.length > 0 && (
        <Alert
          type="warning"
          showIcon
          title={t('images.prune-silent', { agents: report.silent_agents.join(', ') })}
        />
      )}
      {report && (
        <Table
          size="small"
          rowKey={row => `${row.agent_id} ${row.image}`}
          dataSource={report.images}
          locale={{ emptyText: t('images.prune-none') }}
          pagination={{ pageSize: 10, hideOnSinglePage: true }}
          scroll={{ x: true }}
          columns={[
            { title: t('images.prune-agent'), dataIndex: 'agent_id' },
            { title: t('images.name'), dataIndex: 'image' },
            {
              title: t('images.size-bytes'),
              dataIndex: 'size_bytes',
              render: (size: number) => formatBytes(size, i18n.language)
            },
            {
              title: t('images.prune-last-used'),
              dataIndex: 'last_used_at',
              render: (at: string) => new Date(at).toLocaleDateString(i18n.language)
            },
            ...(report.is_dry_run
              ? []
              : [
                  {
                    title: t('images.prune-result'),
                    dataIndex: 'is_removed',
                    render: (isRemoved: boolean) =>
                      t(isRemoved ? 'images.prune-removed' : 'images.prune-kept')
                  }
                ])
          ]}
        />
      )}
    </Modal>
  );
}
