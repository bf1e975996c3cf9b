import { useRef, useState, type CSSProperties, type PointerEvent, type ReactNode } from 'react';
import { Grid } from 'antd';
import { useStored, type Stored } from '../../data/stored';
import { CardContext, type CardActions } from './cardActions';
import {
  HEIGHT_STEP_PIXELS,
  moved,
  ordered,
  sizeOf,
  type BoardLayout,
  type CardSize
} from './layout';

interface BoardProps {
  layout: Stored<BoardLayout>;
  /** Each card has a `CardMenu` in its head. */
  cards: readonly { key: string; content: ReactNode; span?: number }[];
}

/**
 * Cards that the user can move and resize with the mouse or with the menus of the cards. The
 * browser stores the layout.
 */
export function Board({ layout, cards }: BoardProps) {
  const { order, sizes } = useStored(layout);
  const { lg, xxl } = Grid.useBreakpoint();
  const columns = xxl ? 3 : lg ? 2 : 1;
  const keys = ordered(
    cards.map(({ key }) => key),
    order
  );
  const place = (key: string, target: string | undefined) => {
    if (target !== undefined) {
      layout.set({ ...layout.get(), order: moved(keys, key, target) });
    }
  };
  return (
    <div className="bai-board" style={{ '--bai-columns': columns } as CSSProperties}>
      {keys.map((key, index) => {
        const card = cards.find(one => one.key === key);
        const size = sizes[key] ?? sizeOf(card?.span ?? 1, 0);
        const resize = (changed: CardSize) =>
          layout.set({ ...layout.get(), sizes: { ...layout.get().sizes, [key]: changed } });
        return (
          <Cell
            key={key}
            columns={columns}
            onDrop={dragged => place(dragged, key)}
            actions={{
              key,
              size,
              resize,
              moveBack: index > 0 ? () => place(key, keys[index - 1]) : undefined,
              moveForward: index < keys.length - 1 ? () => place(key, keys[index + 1]) : undefined
            }}
          >
            {card?.content}
          </Cell>
        );
      })}
    </div>
  );
}

/** Data type of a dragged card, so that nothing else can be dropped on the board. */
const DRAGGED = 'application/x-bai-card';

interface CellProps {
  actions: CardActions;
  columns: number;
  onDrop: (key: string) => void;
  children: ReactNode;
}

function Cell({ actions, columns, onDrop, children }: CellProps) {
  const element = useRef<HTMLDivElement>(null);
  const [isTarget, setIsTarget] = useState(false);
  const { size } = actions;
  const span = Math.min(size.span, columns);

  const follow = (event: PointerEvent<HTMLDivElement>) => {
    const box = element.current?.getBoundingClientRect();
    if (box && event.currentTarget.hasPointerCapture(event.pointerId)) {
      const changed = sizeOf(
        ((event.clientX - box.left) / box.width) * span,
        (event.clientY - box.top) / HEIGHT_STEP_PIXELS
      );
      if (changed.span !== size.span || changed.steps !== size.steps) {
        actions.resize(changed);
      }
    }
  };
  return (
    <div
      ref={element}
      className={isTarget ? 'bai-board-cell bai-board-target' : 'bai-board-cell'}
      style={{
        gridColumn: `span ${span}`,
        ...(size.steps > 0 ? { height: size.steps * HEIGHT_STEP_PIXELS } : {})
      }}
      onDragStart={event => {
        event.dataTransfer.setData(DRAGGED, actions.key);
        event.dataTransfer.effectAllowed = 'move';
      }}
      onDragOver={event => {
        if (event.dataTransfer.types.includes(DRAGGED)) {
          event.preventDefault();
          setIsTarget(true);
        }
      }}
      onDragLeave={() => setIsTarget(false)}
      onDrop={event => {
        event.preventDefault();
        setIsTarget(false);
        onDrop(event.dataTransfer.getData(DRAGGED));
      }}
    >
      <CardContext value={actions}>{children}</CardContext>
      <div
        className="bai-board-corner"
        aria-hidden
        onPointerDown={event => event.currentTarget.setPointerCapture(event.pointerId)}
        onPointerMove={follow}
      />
    </div>
  );
}
