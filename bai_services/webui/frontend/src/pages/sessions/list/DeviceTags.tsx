import { useTranslation } from 'react-i18next';
import { Tag } from '../../../components/Tag';
import type { Session } from '../../../data/sessions/sessions';
import { deviceGroups } from './deviceGroups';

/** One tag per device group of a session: number of devices or share, and enforcement level. */
export function DeviceTags({ session }: { session: Session }) {
  const { t } = useTranslation();
  return (
    <div className="bai-tags">
      {deviceGroups(session.devices).map(({ key, model, enforcement, count, share }) => (
        <Tag key={key}>
          {share === null ? `${count} × ${model}` : `${model} ${share}`}
          {enforcement && ` · ${t(`enforcement.${enforcement}`, enforcement)}`}
        </Tag>
      ))}
    </div>
  );
}
