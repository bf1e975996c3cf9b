import { shortAmount } from './amount';
import { Tag } from './Tag';

/** Resource slots with their quantities, as the API formats them. */
export const SlotTags = ({ slots }: { slots: Record<string, string> }) => (
  <div className="bai-tags">
    {Object.entries(slots).map(([slot, quantity]) => (
      <Tag key={slot}>
        {slot} {shortAmount(slot, quantity)}
      </Tag>
    ))}
  </div>
);
