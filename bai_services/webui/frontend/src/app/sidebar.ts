import { useEffect, useState } from 'react';

const STORAGE_KEY = 'bai-sidebar';
const TOGGLE_KEY = '[';

const isTyping = (target: EventTarget | null) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));

/** Whether the sidebar is collapsed; the browser keeps the choice, and the key `[` changes it. */
export function useSidebar() {
  const [isCollapsed, setIsCollapsed] = useState(
    () => localStorage.getItem(STORAGE_KEY) === 'collapsed'
  );
  useEffect(() => {
    localStorage.setItem(STORAGE_KEY, isCollapsed ? 'collapsed' : 'open');
  }, [isCollapsed]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === TOGGLE_KEY && !event.ctrlKey && !event.metaKey && !isTyping(event.target)) {
        setIsCollapsed(collapsed => !collapsed);
      }
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
  return [isCollapsed, setIsCollapsed] as const;
}
