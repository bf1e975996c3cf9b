import { Flex, Tag } from 'antd';
import { useTranslation } from 'react-i18next';
import type { Session } from '../../../data/sessions/sessions';

/** The devices of a session, each with the session's share and the enforcement level. */
export function DeviceTags({ session }: { session: Session }) {
  const { t } = useTranslation();
  return (
    <Flex wrap gap={4}>
      {session.devices.map(device => (
        <Tag key={`${device.id} ${device.kernel}`} style={{ marginInlineEnd: 0 }}>
          {device.model} {device.share}
          {device.enforcement && ` · ${t(`enforcement.${device.enforcement}`, device.enforcement)}`}
        </Tag>
      ))}
    </Flex>
  );
}
