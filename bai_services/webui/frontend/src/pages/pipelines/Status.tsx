import { useTranslation } from 'react-i18next';
import { Tag, type TagColor } from '../../components/Tag';

const COLORS: Record<string, TagColor> = {
  queued: 'blue',
  running: 'cyan',
  retrying: 'orange',
  cancelling: 'orange',
  'awaiting-approval': 'orange',
  succeeded: 'green',
  bypassed: 'green',
  failed: 'red',
  blocked: 'red'
};

/** The status of a run or of a task. */
export function Status({ status }: { status: string | null }) {
  const { t } = useTranslation();
  if (!status) {
    return '–';
  }
  return <Tag color={COLORS[status]}>{t(`pipeline-runs.status-${status}`, status)}</Tag>;
}
