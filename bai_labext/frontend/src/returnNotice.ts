import type { Translate } from './i18n';
import type { SavedKernel } from './savedVariables';

/** A button of the notice that the session is back. */
export interface ReturnAction {
  label: string;
  isAccent: boolean;
  /** Whether the notice stays open after a click, because its other buttons are still needed. */
  keepsNotice: boolean;
  run: () => void;
}

interface Handlers {
  restore(kernel: SavedKernel): void;
  showDetails(): void;
  dismiss(): void;
}

/** A button that restores the variables, for each kernel that has saved some. */
export function restoreActions(
  t: Translate,
  kernels: readonly SavedKernel[],
  restore: Handlers['restore']
): ReturnAction[] {
  const saved = kernels.filter(kernel => kernel.saved.length);
  return saved.map(kernel => ({
    label:
      saved.length === 1
        ? t('restore-variables')
        : t('restore-variables-of', { path: kernel.path }),
    isAccent: true,
    keepsNotice: saved.length > 1,
    run: () => restore(kernel)
  }));
}

/** The buttons of the notice that the session is back. */
export function returnActions(
  t: Translate,
  kernels: readonly SavedKernel[],
  handlers: Handlers
): ReturnAction[] {
  return [
    ...restoreActions(t, kernels, kernel => handlers.restore(kernel)),
    {
      label: t('returned-details'),
      isAccent: false,
      keepsNotice: true,
      run: () => handlers.showDetails()
    },
    { label: t('dismiss'), isAccent: false, keepsNotice: false, run: () => handlers.dismiss() }
  ];
}
