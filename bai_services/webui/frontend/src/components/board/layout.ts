import { Stored } from '../../data/stored';

export const MAX_SPAN = 3;
export const HEIGHT_STEP_PIXELS = 80;
const MIN_HEIGHT_STEPS = 2;
const MAX_HEIGHT_STEPS = 10;

export interface CardSize {
  /** Width in columns, 1 to `MAX_SPAN`. */
  span: number;
  /** Height in steps of `HEIGHT_STEP_PIXELS`; 0: as high as the content of the card. */
  steps: number;
}

/** Order and sizes of the cards of a board. Cards that are not in `order` come last. */
export interface BoardLayout {
  order: string[];
  sizes: Record<string, CardSize>;
}

const EMPTY: BoardLayout = { order: [], sizes: {} };

const within = (value: unknown, low: number, high: number) =>
  Math.min(high, Math.max(low, Math.round(Number(value) || 0)));

/** The size, with each number rounded and limited to the valid range. */
export const sizeOf = (span: unknown, steps: unknown): CardSize => {
  const height = within(steps, 0, MAX_HEIGHT_STEPS);
  return {
    span: within(span, 1, MAX_SPAN),
    steps: height > 0 ? Math.max(MIN_HEIGHT_STEPS, height) : 0
  };
};

/** The valid size nearest to `span` and `steps`; undefined if it equals `current`. */
export function resized(current: CardSize, span: number, steps: number): CardSize | undefined {
  const size = sizeOf(span, steps);
  return size.span === current.span && size.steps === current.steps ? undefined : size;
}

const recordOf = (value: unknown) =>
  (value !== null && typeof value === 'object' ? value : {}) as Record<string, unknown>;

/** Read a stored layout; ignore invalid keys, and limit each size to the valid range. */
export function readLayout(stored: unknown): BoardLayout {
  const { order, sizes } = recordOf(stored);
  return {
    order: Array.isArray(order) ? order.filter(key => typeof key === 'string') : EMPTY.order,
    sizes: Object.fromEntries(
      Object.entries(recordOf(sizes)).map(([key, size]) => {
        const { span, steps } = recordOf(size);
        return [key, sizeOf(span, steps)];
      })
    )
  };
}

export const storedLayout = (name: string) => new Stored(`bai-board-${name}`, readLayout);

/** The keys in the user's order; keys that are not in the layout come last. */
export function ordered(keys: readonly string[], order: readonly string[]): string[] {
  const known = order.filter(key => keys.includes(key));
  return [...known, ...keys.filter(key => !known.includes(key))];
}

/** The keys with `key` moved to the position of `target`. */
export function moved(keys: readonly string[], key: string, target: string): string[] {
  const position = keys.indexOf(target);
  if (position < 0 || !keys.includes(key)) {
    return [...keys];
  }
  const others = keys.filter(other => other !== key);
  return [...others.slice(0, position), key, ...others.slice(position)];
}
