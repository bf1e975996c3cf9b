import { lazy, useEffect, useState } from 'react';
import { LazyDialog } from '../../components/LazyDialog';
import { loadScript } from '../../data/scripts';
import { onPaletteOpened } from './paletteState';

const PaletteDialog = lazy(() =>
  loadScript(() => import('./PaletteDialog')).then(module => ({ default: module.PaletteDialog }))
);

/** The command palette; Ctrl-K, Cmd-K and `openPalette` open it. */
export function CommandPalette() {
  const [isOpen, setIsOpen] = useState(false);
  useEffect(() => {
    const open = () => setIsOpen(true);
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        open();
      }
    };
    window.addEventListener('keydown', onKey);
    const stopListening = onPaletteOpened(open);
    return () => {
      window.removeEventListener('keydown', onKey);
      stopListening();
    };
  }, []);
  return (
    <LazyDialog isOpen={isOpen}>
      <PaletteDialog isOpen={isOpen} onClose={() => setIsOpen(false)} />
    </LazyDialog>
  );
}
