import { Descriptions, Modal, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { config } from '../config';
import { healthQuery } from '../data/accounts/account';

const SHORTCUTS = [
  { key: 'Ctrl-K', text: 'about.palette' },
  { key: '[', text: 'about.sidebar' },
  { key: ']', text: 'about.notices' }
] as const;

/** Version, status of the components, API description and keyboard shortcuts. */
export function About({ isOpen, onClose }: { isOpen: boolean; onClose: () => void }) {
  const { t } = useTranslation();
  const { data: health } = useQuery({ ...healthQuery, enabled: isOpen });
  return (
    <Modal open={isOpen} onCancel={onClose} footer={null} title={t('about.title')}>
      <Descriptions
        size="small"
        column={1}
        items={[
          { key: 'name', label: config.brand, children: health?.version ?? '…' },
          {
            key: 'status',
            label: t('about.status'),
            children: health ? t(`about.status-${health.status}`) : '…'
          },
          {
            key: 'api',
            label: t('about.api'),
            children: <a href={`${config.api}/openapi.json`}>OpenAPI</a>
          }
        ]}
      />
      <Typography.Title level={5}>{t('about.shortcuts')}</Typography.Title>
      <Descriptions
        size="small"
        column={1}
        items={SHORTCUTS.map(({ key, text }) => ({
          key,
          label: <kbd>{key}</kbd>,
          children: t(text)
        }))}
      />
    </Modal>
  );
}
