import { useTranslation } from 'react-i18next';
import { Tag, type TagColor } from './Tag';

const COLORS: Record<string, TagColor | undefined> = {
  RUNNING: 'green',
  ERROR: 'red',
  TERMINATED: undefined,
  CANCELLED: undefined,
  TERMINATING: 'orange',
  PENDING: 'blue'
};

export function StatusTag({ status }: { status: string }) {
  const { t } = useTranslation();
  return <Tag color={status in COLORS ? COLORS[status] : 'cyan'}>{t(`status.${status}`)}</Tag>;
}
