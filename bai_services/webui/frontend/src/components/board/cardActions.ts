import { createContext, useContext } from 'react';
import type { CardSize } from './layout';

/**
 * Actions that move and resize a card of a board. The first card has no `moveBack`, and the last
 * card has no `moveForward`.
 */
export interface CardActions {
  key: string;
  size: CardSize;
  resize: (size: CardSize) => void;
  moveBack: (() => void) | undefined;
  moveForward: (() => void) | undefined;
}

export const CardContext = createContext<CardActions | undefined>(undefined);

/** The actions of the surrounding card; undefined outside a board. */
export const useCardActions = () => useContext(CardContext);
