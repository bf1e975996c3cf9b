import { useTranslation } from 'react-i18next';
import { Tag, type TagColor } from '../../../components/Tag';

const COLORS: Record<string, TagColor | undefined> = {
  starting: 'blue',
  ready: 'green',
  draining: 'orange',
  stopping: 'orange'
};

/** The phase of a replica. */
export function Phase({ phase }: { phase: string }) {
  const { t } = useTranslation();
  return <Tag color={COLORS[phase]}>{t(`endpoint-replicas.phase-${phase}`)}</Tag>;
}
