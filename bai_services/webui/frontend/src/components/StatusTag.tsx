import { Tag } from 'antd';
import { useTranslation } from 'react-i18next';

const COLORS: Record<string, string> = {
  RUNNING: 'green',
  ERROR: 'red',
  TERMINATED: 'default',
  CANCELLED: 'default',
  TERMINATING: 'orange',
  PENDING: 'blue'
};

export function StatusTag({ status }: { status: string }) {
  const { t } = useTranslation();
  return <Tag color={COLORS[status] ?? 'cyan'}>{t(`status.${status}`)}</Tag>;
}
