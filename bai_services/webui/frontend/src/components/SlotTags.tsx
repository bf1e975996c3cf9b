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

/** Resource slots with their quantities as a text, such as `cpu 4, mem 16 GiB`. */
export const slotsText = (slots: Record<string, string>) =>
  Object.entries(slots)
    .map(([slot, quantity]) => `${slot} ${shortAmount(slot, quantity)}`)
    .join(', ');
