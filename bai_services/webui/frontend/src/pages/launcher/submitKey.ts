/** The parts of a key event that decide whether it submits the form. */
export interface FormKey {
  key: string;
  ctrlKey: boolean;
  metaKey: boolean;
  /** Whether the key is held down. */
  isRepeated: boolean;
  /** Whether an input method is composing a character; Enter then ends the composition. */
  isComposing: boolean;
  /** Whether the focus is in an open list of choices; Enter then chooses. */
  isChoosing: boolean;
  /** Whether the focus is on the last step or on the number of sessions. */
  isInLastStep: boolean;
}

/**
 * Whether a key submits the launcher's form: Ctrl+Enter (on a Mac also Command+Enter) everywhere,
 * Enter only in the last step. Elsewhere, Enter has the usual effect of the control.
 */
export const submits = (pressed: FormKey): boolean =>
  pressed.key === 'Enter' &&
  !pressed.isRepeated &&
  !pressed.isComposing &&
  !pressed.isChoosing &&
  (pressed.ctrlKey || pressed.metaKey || pressed.isInLastStep);
