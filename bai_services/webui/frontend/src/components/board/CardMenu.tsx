import { HolderOutlined } from '@ant-design/icons';
import { Button, Dropdown } from 'antd';
import { useTranslation } from 'react-i18next';
import { useCardActions } from './cardActions';
import { MAX_SPAN, sizeOf } from './layout';

/** Handle to drag a card. A click or the Enter key opens a menu to move and resize the card. */
export function CardMenu({ title }: { title: string }) {
  const { t } = useTranslation();
  const card = useCardActions();
  if (!card) {
    return null;
  }
  const { span, steps } = card.size;
  const item = (key: string, onClick: (() => void) | undefined) => ({
    key,
    label: t(`board.${key}`),
    disabled: onClick === undefined,
    onClick: () => onClick?.()
  });
  const size = (changed: number, height: number, isPossible = true) =>
    isPossible ? () => card.resize(sizeOf(changed, height)) : undefined;
  return (
    <Dropdown
      trigger={['click']}
      menu={{
        items: [
          item('back', card.moveBack),
          item('forward', card.moveForward),
          { type: 'divider' },
          item('wider', size(span + 1, steps, span < MAX_SPAN)),
          item('narrower', size(span - 1, steps, span > 1)),
          item('taller', size(span, steps === 0 ? 4 : steps + 1)),
          item('shorter', size(span, steps - 1, steps > 0)),
          item('fit', size(span, 0, steps > 0))
        ]
      }}
    >
      <Button
        type="text"
        draggable
        icon={<HolderOutlined />}
        className="bai-board-handle"
        aria-label={t('board.move', { title })}
      />
    </Dropdown>
  );
}
