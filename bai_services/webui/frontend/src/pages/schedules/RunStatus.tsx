import { useTranslation } from 'react-i18next';
import { Tag, type TagColor } from '../../components/Tag';

const COLORS: Record<string, TagColor> = { due: 'blue', started: 'green', skipped: 'orange' };

/** The result of a start of a schedule. */
export function RunStatus({ status }: { status: string | null }) {
  const { t } = useTranslation();
  if (!status) {
    return '–';
  }
  return <Tag color={COLORS[status]}>{t(`schedules.last-status-${status}`, status)}</Tag>;
}
