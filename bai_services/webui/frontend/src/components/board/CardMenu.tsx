import { HolderOutlined } from '@ant-design/icons';
import { Button, Dropdown } from 'antd';
import { useTranslation } from 'react-i18next';
import { useCardActions } from './cardActions';
import { resized } from './layout';
import { onMenuKeyDown } from '../menuKeys';

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
  const size = (newSpan: number, newSteps: number) => {
    const changed = resized(card.size, newSpan, newSteps);
    return changed && (() => card.resize(changed));
  };
  return (
    <Dropdown
      autoFocus
      trigger={['click']}
      menu={{
        onKeyDown: onMenuKeyDown,
        items: [
          item('back', card.moveBack),
          item('forward', card.moveForward),
          { type: 'divider' },
          item('wider', size(span + 1, steps)),
          item('narrower', size(span - 1, steps)),
          item('taller', size(span, steps === 0 ? 4 : steps + 1)),
          item('shorter', size(span, steps - 1)),
          item('fit', size(span, 0))
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
