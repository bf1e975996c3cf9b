import { useTranslation } from 'react-i18next';
import type { Session } from '../data/client';
import { formatSeconds, useNow } from './time';

/** Run time of a session; for a session that has not started, the time since its creation. */
export function Elapsed({ session }: { session: Session }) {
  const { i18n } = useTranslation();
  const hasEnded = session.terminated_at !== null;
  const now = useNow(hasEnded ? null : undefined);
  const begin = Date.parse(session.started_at ?? session.created_at);
  const end = session.terminated_at ? Date.parse(session.terminated_at) : now;
  return <span className="bai-nowrap">{formatSeconds((end - begin) / 1000, i18n.language)}</span>;
}
