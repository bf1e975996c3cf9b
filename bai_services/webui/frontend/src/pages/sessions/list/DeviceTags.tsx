import { useTranslation } from 'react-i18next';
import { Tag } from '../../../components/Tag';
import type { Session } from '../../../data/sessions/sessions';

/** The devices of a session, each with the session's share and the enforcement level. */
export function DeviceTags({ session }: { session: Session }) {
  const { t } = useTranslation();
  return (
    <div className="bai-tags">
      {session.devices.map(device => (
        <Tag key={`${device.id} ${device.kernel}`}>
          {device.model} {device.share}
          {device.enforcement && ` · ${t(`enforcement.${device.enforcement}`, device.enforcement)}`}
        </Tag>
      ))}
    </div>
  );
}
