import { createContext, useContext } from 'react';
import type { CardSize } from './layout';

/** What a card of a board can do with itself; undefined where it is at the end. */
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
