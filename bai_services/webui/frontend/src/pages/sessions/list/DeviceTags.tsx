import { useTranslation } from 'react-i18next';
import { Tag } from '../../../components/Tag';
import type { Session } from '../../../data/sessions/sessions';
import { deviceGroups } from './deviceGroups';

/** The devices of a session with the number of whole devices or the share, and the enforcement. */
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
