import { Flex, Tag } from 'antd';
import { shortAmount } from './amount';

/** Resource slots with their quantities, as the API formats them. */
export function SlotTags({ slots }: { slots: Record<string, string> }) {
  return (
    <Flex wrap gap={4}>
      {Object.entries(slots).map(([slot, quantity]) => (
        <Tag key={slot} style={{ marginInlineEnd: 0 }}>
          {slot} {shortAmount(slot, quantity)}
        </Tag>
      ))}
    </Flex>
  );
}
