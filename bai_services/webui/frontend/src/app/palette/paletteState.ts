type Listener = () => void;
const listeners = new Set<Listener>();

/** Open the command palette from any component. */
export function openPalette(): void {
  listeners.forEach(listener => listener());
}

export function onPaletteOpened(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
