import { useTranslation } from 'react-i18next';
import { hasFailed, type Session } from '../data/sessions/sessions';
import { Tag, type TagColor } from './Tag';

const COLORS: Record<string, TagColor | undefined> = {
  RUNNING: 'green',
  ERROR: 'red',
  TERMINATED: undefined,
  CANCELLED: undefined,
  TERMINATING: 'orange',
  PENDING: 'blue',
  SUSPENDED: 'orange'
};

export function StatusTag({ status }: { status: string }) {
  const { t } = useTranslation();
  return <Tag color={status in COLORS ? COLORS[status] : 'cyan'}>{t(`status.${status}`)}</Tag>;
}

/** The status of a session; a failed session is shown as `ERROR`. */
export const SessionTag = ({ session }: { session: Session }) => (
  <StatusTag status={hasFailed(session) ? 'ERROR' : session.status} />
);
